"""The simulated players: names, countries, skill, and how often they play."""

from __future__ import annotations

import random
from typing import NamedTuple

NAMES = """
Ada Akira Amara Anouk Arjun Astrid Bao Beatriz Ben Bjorn Camila Chidi Chloe Dario Devi Diego Elif Elias Emeka Emma
Esra Fatima Felix Freya Gael Giulia Hana Hugo Ines Ingrid Isaac Ivan Jamal Jana Jia Joao Kai Kalea Katya Kenji Lars
Leila Leo Lina Luca Lucia Maja Malik Mateo Maya Mei Mila Milan Nadia Naoki Nia Nils Noor Olu Omar Oskar Pablo Petra
Priya Rafael Ravi Rosa Sami Sana Sara Selin Sofia Soren Tariq Tessa Theo Tomas Uma Vera Viktor Wei Yara Yuki Zane
Zoe
""".split()  # noqa: SIM905 - easier to read than a list of so many
ENDINGS = """
ace blitz byte dash drift echo ember fox frost ghost hawk jinx lynx nova orbit pixel quill rook sage volt
""".split()  # noqa: SIM905 - easier to read than a list of so many
COUNTRIES = {
    "BR": 14,
    "US": 13,
    "JP": 9,
    "DE": 8,
    "IN": 8,
    "FR": 6,
    "TR": 6,
    "KR": 5,
    "MX": 5,
    "SE": 3,
    "NG": 4,
    "PL": 4,
}
GUILDS = ("Night Owls", "Iron Foxes", "Paper Cranes", "Salt & Thunder", "The Late Shift", "Copper Kites")


class Person(NamedTuple):
    """A simulated player."""

    id: str
    name: str
    country: str
    guild: str
    skill: float  # about 1
    keenness: float  # how often they play, relative to others


def crowd(count: int, rng: random.Random) -> list[Person]:
    """Return `count` people; the same ones for the same seed."""
    people = []
    for number in range(1, count + 1):
        first, ending = rng.choice(NAMES), rng.choice(ENDINGS)
        people.append(
            Person(
                id=f"{first}-{ending}-{number}".lower(),
                name=rng.choice((first, f"{first} {ending.title()}", f"{first}{rng.randrange(10, 99)}")),
                country=rng.choices(list(COUNTRIES), list(COUNTRIES.values()))[0],
                guild=rng.choice(GUILDS),
                skill=rng.lognormvariate(0, 0.35),
                keenness=rng.paretovariate(1.2),
            )
        )
    return people
