"""N-body: the sun and the four large planets attract each other, in steps of a hundredth of a year's fraction.

Positions and velocities are lists of three floats, as numeric Python code has them.
"""

from math import pi, sqrt

ROUNDS = 3600  # steps

STEP = 0.01
DAYS = 365.24
SOLAR_MASS = 4 * pi * pi

#: position (astronomical units), velocity (a day), mass (of the sun)
PLANETS = {
    "jupiter": (
        (4.84143144246472090, -1.16032004402742839, -0.103622044471123109),
        (0.00166007664274403694, 0.00769901118419740425, -0.0000690460016972063023),
        0.000954791938424326609,
    ),
    "saturn": (
        (8.34336671824457987, 4.12479856412430479, -0.403523417114321381),
        (-0.00276742510726411021, 0.00499852801234917238, 0.0000230417297573763929),
        0.000285885980666130812,
    ),
    "uranus": (
        (12.8943695621391310, -15.1111514016986312, -0.223307578892655734),
        (0.00296460137564761618, 0.00237847173959480950, -0.0000296589568540237556),
        0.0000436624404335156298,
    ),
    "neptune": (
        (15.3796971148509165, -25.9193146099879641, 0.179258772950371181),
        (0.00268067772490389322, 0.00162824170038242295, -0.0000951592254519715870),
        0.0000515138902046611451,
    ),
}


def solar_system():
    """Bodies as (position, velocity, mass), the sun first; the total momentum is zero."""
    bodies = [
        (list(position), [each * DAYS for each in velocity], mass * SOLAR_MASS)
        for position, velocity, mass in PLANETS.values()
    ]
    momentum = [sum(velocity[axis] * mass for _, velocity, mass in bodies) for axis in range(3)]
    return [([0.0, 0.0, 0.0], [-each / SOLAR_MASS for each in momentum], SOLAR_MASS), *bodies]


def advance(bodies, pairs, steps):
    for _ in range(steps):
        for (position, velocity, mass), (other_position, other_velocity, other_mass) in pairs:
            dx = position[0] - other_position[0]
            dy = position[1] - other_position[1]
            dz = position[2] - other_position[2]
            squared = dx * dx + dy * dy + dz * dz
            pull = STEP / (squared * sqrt(squared))
            towards, back = other_mass * pull, mass * pull
            velocity[0] -= dx * towards
            velocity[1] -= dy * towards
            velocity[2] -= dz * towards
            other_velocity[0] += dx * back
            other_velocity[1] += dy * back
            other_velocity[2] += dz * back
        for position, velocity, _ in bodies:
            position[0] += STEP * velocity[0]
            position[1] += STEP * velocity[1]
            position[2] += STEP * velocity[2]


def energy(bodies, pairs):
    kinetic = sum(mass * sum(each * each for each in velocity) / 2 for _, velocity, mass in bodies)
    potential = sum(
        mass * other_mass / sqrt(sum((a - b) ** 2 for a, b in zip(position, other_position)))
        for (position, _, mass), (other_position, _, other_mass) in pairs
    )
    return kinetic - potential


def run(n):
    bodies = solar_system()
    pairs = [(body, other) for i, body in enumerate(bodies) for other in bodies[i + 1 :]]
    advance(bodies, pairs, n)
    return round(energy(bodies, pairs) * 1e12)
