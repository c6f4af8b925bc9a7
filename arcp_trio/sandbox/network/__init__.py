"""The network of contained programs: empty, but for doors that lead to a proxy of ours.

A sandbox has a network namespace of its own, from which nothing can be reached. Listening sockets
are opened inside of it (`entering`), and what connects to them is accepted outside, by a proxy that
holds each request against what the job may reach (`reach`) at that moment.
"""
