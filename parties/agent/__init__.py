"""The party agent: its folder, sockets, store and consent."""
