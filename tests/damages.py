"""Ways to damage the bytes of a file, each by a generator of `random`."""


def flipped(data, rng):
    place = rng.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]


def cut_off(data, rng):
    return data[: rng.randrange(len(data))]


def swapped(data, rng):
    one, middle, other = sorted(rng.sample(range(len(data) + 1), 3))
    return data[:one] + data[middle:other] + data[one:middle] + data[other:]


def cut_out(data, rng):
    one, other = sorted(rng.sample(range(len(data) + 1), 2))
    return data[:one] + data[other:]


def doubled(data, rng):
    one, other = sorted(rng.sample(range(len(data) + 1), 2))
    return data[:other] + data[one:]
