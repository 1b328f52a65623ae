"""Numba's LLVM modules as one WebAssembly module: no toolchain, and no linker, since it is a single object.

Each entry becomes an export that takes one address: a block of 8-byte slots with its arguments as Numba flattens them (an array
is two zeros, its items, the bytes of one, its address, its shape, its strides). The module imports a memory and a stack pointer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import llvmlite.binding as llvm

from townlet.errors import StorageError

TRIPLE = "wasm32-unknown-unknown"
LAYOUT = "e-m:e-p:32:32-p10:8:8-p20:8:8-i64:64-i128:128-n32:64-S128-ni:1:10:20"
FEATURES = "+bulk-memory,+sign-ext,+nontrapping-fptoint,+mutable-globals"
CUSTOM, EXPORT = 0, 7  # sections
FUNCTION_SYMBOL, DATA_SYMBOL, SECTION_SYMBOL = 0, 1, 3
SYMBOL_TABLE = 8  # subsection of the custom section "linking"
UNDEFINED, EXPLICIT_NAME = 0x10, 0x40
FOR_PYTHON = re.compile(r"@(?:_ZN7cpython|cfunc\.)")
POINTERS_ON_THE_STACK = re.compile(r"= alloca \{[^\n]*\bptr\b")


def assemble(entries: Mapping[str, bytes]) -> bytes:
    """The module that exports these entries, given as the bitcode of each (`world._jit.portable`)."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(
        cpu="mvp", features=FEATURES, opt=2, reloc="static", codemodel="default"
    )
    whole = llvm.parse_assembly("")
    whole.triple, whole.data_layout = TRIPLE, LAYOUT
    for name, bitcode in entries.items():
        whole.link_in(_entry(name, bitcode))
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    passes.getModulePassManager().run(whole, passes)
    for function in whole.functions:
        if function.is_declaration and not function.name.startswith("llvm."):
            raise StorageError(f"the engine would need {function.name} of its host; kernels may call kernels only")
    return _exported(machine.emit_object(whole), tuple(entries))


def _entry(name: str, bitcode: bytes) -> llvm.ModuleRef:
    """An entry with all it reaches, for wasm32: only its block-taking export can be seen from outside."""
    text = str(llvm.parse_bitcode(bitcode))
    text = re.sub(r'^target (triple|datalayout) = ".*"$', "", text, flags=re.MULTILINE)
    module = llvm.parse_assembly(text.replace("= common ", "= internal "))
    module.triple, module.data_layout = TRIPLE, LAYOUT
    mangled = f"{len(name)}{name}B"
    (symbol,) = (one.name for one in module.functions if one.name.startswith("_ZN7townlet") and mangled in one.name)
    for body in text.split("\ndefine ")[1:]:
        if FOR_PYTHON.search(body.partition("\n")[0]) is None and POINTERS_ON_THE_STACK.search(body) is not None:
            raise StorageError(f"a kernel of {name} keeps addresses in a record on the stack, laid out for 64 bits already")
    kinds = [str(argument.type) for argument in module.get_function(symbol).arguments]
    loads = []
    for k, kind in enumerate(kinds):
        stored = "i8" if kind == "i1" else kind
        loads += [f"  %p{k} = getelementptr i8, ptr %block, i32 {8 * k}", f"  %l{k} = load {stored}, ptr %p{k}, align 8"]
        loads += [f"  %v{k} = trunc i8 %l{k} to i1"] if kind == "i1" else [f"  %v{k} = bitcast {kind} %l{k} to {kind}"]
    given = ", ".join(f"{kind} %v{k}" for k, kind in enumerate(kinds))
    head = f'target triple = "{TRIPLE}"\ntarget datalayout = "{LAYOUT}"\ndeclare i32 @"{symbol}"({", ".join(kinds)})\n'
    wrapper = [f"define i32 @{name}(ptr %block) {{", *loads, f'  %r = call i32 @"{symbol}"({given})', "  ret i32 %r", "}"]
    module.link_in(llvm.parse_assembly(head + "\n".join(wrapper)))
    for one in (*module.functions, *module.global_variables):
        if not one.is_declaration and one.name != name:
            one.linkage = "internal"
    return module


# --- the object as a module ---------------------------------------------------------------------------------------------------


def _exported(data: bytes, names: tuple[str, ...]) -> bytes:
    """A relocatable object whose functions are exported: its addresses are those of a lone object, which it is."""
    sections = list(_sections(data))
    index = {}
    for kind, body in sections:
        if kind == CUSTOM:
            name, at = _name(body, 0)
            if name == "linking":
                index = _functions(body, at)
    export = _number(len(names)) + b"".join(_text(name) + b"\0" + _number(index[name]) for name in names)
    kept = [(kind, body) for kind, body in sections if kind != CUSTOM]
    before = [one for one in kept if one[0] < EXPORT]
    after = [one for one in kept if one[0] > EXPORT]
    return data[:8] + b"".join(bytes([kind]) + _text(body) for kind, body in (*before, (EXPORT, export), *after))


def _sections(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 8
    while at < len(data):
        kind = data[at]
        size, at = _read(data, at + 1)
        yield kind, data[at : at + size]
        at += size


def _functions(body: bytes, at: int) -> dict[str, int]:
    """Index by name of the functions in the symbol table of a section `linking`."""
    found = {}
    _, at = _read(body, at)  # its version
    while at < len(body):
        kind = body[at]
        size, at = _read(body, at + 1)
        end = at + size
        if kind == SYMBOL_TABLE:
            count, at = _read(body, at)
            for _ in range(count):
                what = body[at]
                flags, at = _read(body, at + 1)
                if what == DATA_SYMBOL:
                    _, at = _name(body, at)
                    for _ in range(0 if flags & UNDEFINED else 3):
                        _, at = _read(body, at)
                else:
                    number, at = _read(body, at)
                    if what != SECTION_SYMBOL and (not flags & UNDEFINED or flags & EXPLICIT_NAME):
                        name, at = _name(body, at)
                        if what == FUNCTION_SYMBOL:
                            found[name] = number
        at = end
    return found


def _read(data: bytes, at: int) -> tuple[int, int]:
    """A LEB128 number and what comes behind it."""
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at


def _number(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def _name(data: bytes, at: int) -> tuple[str, int]:
    size, at = _read(data, at)
    return data[at : at + size].decode(), at + size


def _text(data: str | bytes) -> bytes:
    raw = data.encode() if isinstance(data, str) else data
    return _number(len(raw)) + raw
