"""Protocols: generators that yield Ask, Publish and Join. They know no engine, disk or clock."""
