"""What would one more shower change? The same moment lived twice with the same draws, as it was and edited."""

from __future__ import annotations

from townlet.studies.fork import fork, moment_of_scenario


def main(futures: int = 16, ticks: int = 600) -> float:
    moment = moment_of_scenario("town_day", at=30)
    result = fork(moment, ["objects += shower@3,9"], futures=futures, ticks=ticks)
    effect = result.effects["wait_mean"].effect
    print(f"mean wait {effect.difference:+.2f} ticks, 95 % interval {effect.low:+.2f} … {effect.high:+.2f}")
    return effect.difference


if __name__ == "__main__":
    main()
