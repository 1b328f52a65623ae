"""What if one of the two showers were gone? The same moment lived twice with the same draws, as it was and edited."""

from __future__ import annotations

from townlet.studies.fork import fork, moment_of_scenario


def main(futures: int = 16, ticks: int = 600) -> float:
    moment = moment_of_scenario("town_day", at=30)
    result = fork(moment, ["objects -= shower_1"], futures=futures, ticks=ticks)
    effect = result.effects["conflicts"].effect
    print(f"conflicts per resident-day {effect.difference:+.2f}, 95 % interval {effect.low:+.2f} … {effect.high:+.2f}")
    return effect.difference


if __name__ == "__main__":
    main()
