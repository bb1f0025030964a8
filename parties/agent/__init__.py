"""The party agent: its folder, sockets, store and consent."""

from protocols.platform import guard

guard()
