"""How Numba turns the kernels into machine code: every stage once.

Left alone, Numba optimises a function and writes its machine code together with everything it calls, then does so again for
each of its callers. Here a kernel stops at its own unlinked LLVM module. An entry, which Python calls, gathers the modules of all
kernels it reaches, optimises the whole and writes the only machine code. Passes for closures, lifted loops and array
expressions, which no kernel has, are left out. Together that is half of the first start.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from numba import types
from numba.core import codegen, compiler, targetconfig, typed_passes, untyped_passes
from numba.core.compiler_machinery import PassManager, register_pass

# Symbols are named after their argument types. A named tuple of record arrays would spell out every field of every record,
# tens of kilobytes a symbol; records themselves use their type's number instead, and so do our tuples.
named_tuple: Any = types.NamedTuple
named_tuple.mangling_args = property(lambda self: (self.instance_class.__name__, (self._code,)))


def _equal_flags(one: Any, other: Any) -> Any:
    """Compare what either has set; the rest are the defaults of both."""
    if not isinstance(other, targetconfig.TargetConfig):
        return NotImplemented
    mine, theirs = one._values, other._values
    return mine == theirs or all(getattr(one, name) == getattr(other, name) for name in mine.keys() | theirs.keys())


# Flags are part of the key of every operator that is resolved. Numba's own comparison and hash list all 25 options each time,
# and its hash is of their names only.
flags_type: Any = targetconfig.TargetConfig
flags_type.__eq__ = _equal_flags
flags_type.__hash__ = lambda self: hash(type(self))


class KernelModule(codegen.JITCodeLibrary):
    """One kernel's LLVM module: neither linked nor optimised as a whole, and without machine code."""

    def finalize(self) -> None:
        self._finalized = True


class EntryModule(codegen.JITCodeLibrary):
    """An entry and all kernels it reaches. What only it can call, LLVM inlines where that pays and drops where it did."""

    portable = b""  # LLVM bitcode of the whole, before any pass that knows this processor

    def finalize(self) -> None:
        self._linking_libraries = list(_reached(self._linking_libraries, {}))
        super().finalize()

    def _optimize_final_module(self) -> None:
        for function in self.get_defined_functions():
            if function.linkage.name == "linkonce_odr":
                function.linkage = "internal"
        self.portable = self._final_module.as_bitcode()
        super()._optimize_final_module()


def _reached(libraries: Iterable[Any], found: dict[Any, None]) -> dict[Any, None]:
    for library in libraries:
        if library not in found:
            found[library] = None
            if isinstance(library, KernelModule):
                _reached(library._linking_libraries, found)
    return found


@register_pass(mutates_CFG=True, analysis_only=False)
class KernelLowering(typed_passes.NativeLowering):
    """Write the kernel's module and tell its callers of it."""

    _name = "kernel_lowering"

    def run_pass(self, state: Any) -> bool:
        state.flags = state.flags.copy()
        state.flags.forceinline = state.inlined
        super().run_pass(state)
        key = _uncallable(state.func_id.func_qualname)
        state.cr = state.cr._replace(cfunc=key)
        state.targetctx.insert_user_function(key, state.cr.fndesc, [state.library])
        return True


def _uncallable(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: object) -> NoReturn:
        raise TypeError(f"{name} is a kernel: it is compiled into entries, and Python can call those only")

    return refuse


class EntryCompiler(compiler.CompilerBase):
    """The passes our code needs. The collector of cycles rests meanwhile: it would walk through all of Numba's types again."""

    module: type[Any] = EntryModule
    lowering: type[Any] = typed_passes.NativeLowering

    def __init__(self, typingctx: Any, targetctx: Any, library: None, args: Any, result: Any, flags: Any, names: Any) -> None:
        super().__init__(typingctx, targetctx, library, args, result, flags, names)
        self.state.library = self.module(self.state.targetctx.codegen(), self.module.__name__)
        self.state.library.enable_object_caching()

    def define_pipelines(self) -> list[Any]:
        passes = PassManager("townlet")
        for each in (
            untyped_passes.TranslateByteCode, untyped_passes.FixupArgs, untyped_passes.IRProcessing,
            untyped_passes.RewriteSemanticConstants, untyped_passes.DeadBranchPrune, untyped_passes.GenericRewrites,
            untyped_passes.ReconstructSSA, typed_passes.NopythonTypeInference, typed_passes.PreLowerStripPhis,
            typed_passes.IRLegalization, typed_passes.AnnotateTypes, self.lowering, typed_passes.NoPythonBackend,
        ):  # fmt: skip
            passes.add_pass(each, each.__name__)
        passes.finalize()
        return [passes]

    def compile_extra(self, function: Any) -> Any:
        collecting = gc.isenabled()
        gc.disable()
        try:
            return super().compile_extra(function)
        finally:
            if collecting:
                gc.enable()


class KernelCompiler(EntryCompiler):
    """Kernels differ in one flag, inlining. Without it until lowered, they share what Numba compiles for its operators."""

    module = KernelModule
    lowering = KernelLowering

    def __init__(self, typingctx: Any, targetctx: Any, library: None, args: Any, result: Any, flags: Any, names: Any) -> None:
        flags = flags.copy()
        inlined, flags.forceinline, flags.no_compile = flags.forceinline, False, True
        super().__init__(typingctx, targetctx, library, args, result, flags, names)
        self.state.inlined = inlined
