"""The whole job: split, train, choose, attack, certify, write."""
