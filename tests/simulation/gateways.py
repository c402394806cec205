"""Gateways of a fleet, Kafka's groups and clients, small: what is real is `Bundles`, by which each gateway decides.

Time is in tenths of a second. Kafka has one group for the fleet, which hands bundles over in two steps as
cooperative-sticky assignment does, and one for each subscription, whose first member owns the cursor and whose
commits it refuses from anybody else.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from pulsar_on_kafka.gateway.fleet.bundles import BUNDLES, DISCONNECTED_S, Bundles, FleetMember
from pulsar_on_kafka.gateway.fleet.membership import PATIENCE_S

SESSION_S = 6.0
STEP_S = 0.1
LOOK_S = 0.2
HAND_OVER_S = 10.0
SAVE_S = 1.0
KEEP_ALIVE_S = 45.0
TIMEOUT_S = 30.0


class FleetsGroup:
    """Kafka's group of the gateways. A member says at each poll that it lives, and hears what it has."""

    def __init__(self) -> None:
        self.heard: dict[str, float] = {}
        """By member: when it was heard last."""
        self.urls: dict[str, str] = {}
        self.joined_s: dict[str, float] = {}
        self.given: dict[str, set[int]] = {}
        self._held: dict[str, set[int]] = {}
        """What each member said that it has, of those that joined the round that is on."""
        self.stable = True

    def poll(self, member: str, url: str, held: set[int], now_s: float) -> set[int] | None:
        """What it has by now; None: a round is on, or it was thrown out and joins again."""
        if member not in self.heard:
            self.stable = False
            self._held = {}
            self.urls[member] = url
            self.given[member] = set()
            self.joined_s[member] = now_s
            held = set()
        self.heard[member] = now_s
        if not self.stable:
            self._held[member] = set(held)
            if self._held.keys() == self.heard.keys():
                self._share_out()
            else:
                return None
        given = self.given[member]
        if held - given:  # it gives these back, and joins again
            self.stable = False
            self._held = {}
        return set(given)

    def knows(self, member: str) -> bool:
        return member in self.heard

    def _share_out(self) -> None:
        members = sorted(self._held)
        most = -(-BUNDLES // len(members))
        kept = {member: set(sorted(self._held[member])[:most]) for member in members}
        taken = {bundle for held in self._held.values() for bundle in held}
        for bundle in set(range(BUNDLES)) - taken:
            kept[min(members, key=lambda member: len(kept[member]))].add(bundle)
        self.given = kept
        self.stable = True

    def leave(self, member: str) -> None:
        if member in self.heard:
            del self.heard[member], self.urls[member], self.given[member]
            self.stable, self._held = not self.heard, {}

    def expire(self, now_s: float) -> None:
        for member, heard_s in list(self.heard.items()):
            if now_s - heard_s > SESSION_S:
                self.leave(member)

    def owners(self) -> dict[int, str]:
        return {bundle: self.urls[member] for member, given in self.given.items() for bundle in given}


@dataclass
class Topic:
    """A topic, its log, and the cursor of its one subscription."""

    name: str
    bundle: int
    log: list[str] = field(default_factory=list)
    members: dict[str, float] = field(default_factory=dict)
    """Of the subscription's group, the owner first, and when each was heard."""
    committed: set[int] = field(default_factory=set)

    def owner(self) -> str:
        return next(iter(self.members), "")

    def expire(self, now_s: float) -> None:
        for member, heard_s in list(self.members.items()):
            if now_s - heard_s > SESSION_S:
                del self.members[member]


class Connection:
    """A client's connection to a gateway, which may be dead or stand still; what comes then waits for it."""

    def __init__(self, client: Client, gateway: Gateway, now_s: float) -> None:
        self.client = client
        self.gateway = gateway
        self.heard_s = now_s
        self.broken = not gateway.alive
        if gateway.alive:
            gateway.connections.append(self)

    def say(self, kind: str, what: object = None) -> None:
        self.gateway.inbox.append((self, kind, what))

    def tell(self, kind: str, what: object = None) -> None:
        if not self.broken and self.client.connection is self:
            self.client.hear(kind, what)

    def end(self) -> None:
        self.broken = True
        if self in self.gateway.connections:
            self.gateway.connections.remove(self)


@dataclass
class Serving:
    """A subscription's membership at a gateway, and the consumer that it serves: one, because it is Exclusive."""

    topic: Topic
    connection: Connection
    owns: bool = False
    acknowledged: set[int] = field(default_factory=set)
    given: set[int] = field(default_factory=set)
    saved_s: float = 0.0


@dataclass
class Waiting:
    connection: Connection
    bundle: int
    since_s: float
    then: Callable[[str | None], None]


class Gateway:
    """A process. It stands still while `stopped_until` is ahead, and hears nothing of Kafka until `cut_until`."""

    def __init__(self, world: World, name: str, url: str) -> None:
        self.world = world
        self.name = name
        self.url = url
        self.alive = True
        self.stopping = False
        self.stopped_until = self.cut_until = self.cut_since_s = 0.0
        self.bundles = Bundles(url)
        self.connections: list[Connection] = []
        self.inbox: deque[tuple[Connection, str, object]] = deque()
        self.waiting: list[Waiting] = []
        self.producers: dict[Connection, Topic] = {}
        self.consumers: dict[str, Serving] = {}
        self.unsent: list[tuple[Connection, Topic, str]] = []
        """Sent by clients, and not with Kafka yet."""
        self.moving: list[tuple[Connection, str]] = []
        """Producers that are closed when everything has its receipt, and then told where to go."""
        self._held: set[int] = set()
        self._polled_s = world.now_s
        self._looked_s = 0.0
        self._described: tuple[list[FleetMember], bool] | None = None
        self._stopped_s = 0.0

    @property
    def cut_off(self) -> bool:
        return self.world.now_s < self.cut_until

    def cut(self, until_s: float) -> None:
        if not self.cut_off:
            self.cut_since_s = self.world.now_s
        self.cut_until = until_s

    def tick(self) -> None:
        if not self.alive or self.world.now_s < self.stopped_until:
            return
        steps = [self._take, self._belong, self._look, self._serve]
        self.world.rng.shuffle(steps)  # whatever a process does first when it wakes
        for step in steps:
            step()
        for connection in self.connections:
            connection.heard_s = self.world.now_s
        late = self.world.now_s - self._stopped_s > HAND_OVER_S
        if self.stopping and not self.moving and (self.bundles.handed_over or late):
            self.world.ends(self, late=late)
            self._end()

    def kill(self) -> None:
        self.alive = False
        for connection in list(self.connections):
            connection.end()

    def _end(self) -> None:
        for serving in list(self.consumers.values()):
            self._close_consumer(serving)
        self.kill()

    # The fleet ----------------------------------------------------------------------------------------------------

    def _belong(self) -> None:
        now_s, group = self.world.now_s, self.world.fleet
        if self.stopping:
            return
        if self.cut_off or not group.knows(self.name):
            if self._held and (not self.cut_off or now_s - self._polled_s > SESSION_S):
                self._revoke(self._held)
            if self.cut_off:
                return
        given = group.poll(self.name, self.url, self._held, now_s)
        self._polled_s = now_s
        if given is None:
            return
        if self._held - given:
            self._revoke(self._held - given)
        if given - self._held:
            self.bundles.assigned(given - self._held, now_s)
            self._held |= given

    def _revoke(self, bundles: set[int]) -> None:
        self.bundles.revoked(bundles, self.world.now_s)
        self._held = self._held - bundles

    def stop(self) -> None:
        self.stopping = True
        self._stopped_s = self.world.now_s
        self.bundles.leave()
        self._held = set()
        if not self.cut_off:
            self.world.fleet.leave(self.name)

    def _look(self) -> None:
        now_s = self.world.now_s
        if now_s - self._looked_s < LOOK_S or (self.bundles.settled and not self.waiting):
            return
        self._looked_s = now_s
        group = self.world.fleet
        if self._described is not None and not self.cut_off:
            members, stable = self._described  # what comes is of some time ago
            self.bundles.described(members, now_s, stable=stable)
        given = group.given if group.stable else {}
        members = [FleetMember(url, set(given.get(name, ())), name == self.name) for name, url in group.urls.items()]
        self._described = None if self.cut_off else (members, group.stable)
        self._tell()

    def _tell(self) -> None:
        now_s, waiting, self.waiting = self.world.now_s, self.waiting, []
        for each in waiting:
            found = self._known(each.bundle)
            if found is None and now_s < each.since_s + PATIENCE_S and not self.bundles.is_disconnected(now_s):
                self.waiting.append(each)
            else:
                each.then(found or self.bundles.owner(each.bundle, now_s))
        self._follow()

    def _known(self, bundle: int) -> str | None:
        found = self.bundles.known(bundle, self.world.now_s)
        return found if found is None or found == self.url or self.world.answers(found) else None

    def _ask(self, connection: Connection, bundle: int, then: Callable[[str | None], None]) -> None:
        found = self._known(bundle)
        if found is None and not self.bundles.is_disconnected(self.world.now_s):
            self.waiting.append(Waiting(connection, bundle, self.world.now_s, then))
        else:
            then(found)

    def _follow(self) -> None:
        for connection, topic in list(self.producers.items()):
            if url := self.bundles.elsewhere(topic.bundle):
                del self.producers[connection]
                self.moving.append((connection, url))
        for serving in list(self.consumers.values()):
            if url := self.bundles.elsewhere(serving.topic.bundle):
                self._close_consumer(serving)
                serving.connection.tell("CLOSE", url)
        if (self.producers or self.consumers) and self.bundles.is_disconnected(self.world.now_s):
            for connection in list(self.connections):
                self._drop(connection)
                connection.end()

    # Clients ------------------------------------------------------------------------------------------------------

    def _take(self) -> None:
        for _ in range(len(self.inbox)):
            connection, kind, what = self.inbox.popleft()
            if connection.broken:
                continue
            topic = connection.client.topic
            if kind == "LOOKUP":
                self._ask(connection, topic.bundle, self._looked_up(connection))
            elif kind == "OPEN":
                self._ask(connection, topic.bundle, self._opening(connection))
            elif kind == "SEND" and connection in self.producers:
                self.unsent.append((connection, topic, str(what)))
            elif kind == "ACK" and isinstance(what, int):
                serving = self.consumers.get(topic.name)
                if serving is not None and serving.connection is connection:
                    serving.acknowledged.add(what)

    def _looked_up(self, connection: Connection) -> Callable[[str | None], None]:
        since_s = self.world.now_s

        def tell(url: str | None) -> None:
            self.world.looked_up(self, since_s)
            connection.tell("NOT_READY" if url is None else "LOOKED", url)

        return tell

    def _opening(self, connection: Connection) -> Callable[[str | None], None]:
        def open_it(url: str | None) -> None:
            topic = connection.client.topic
            if connection.broken:
                return
            if url != self.url:
                connection.tell("NOT_READY")
            elif connection.client.produces:
                self.producers[connection] = topic
                connection.tell("OPENED")
            elif self._is_busy(topic, connection):
                connection.tell("NOT_READY")
            else:
                self.consumers[topic.name] = Serving(topic, connection)
                topic.members.setdefault(self.name, self.world.now_s)
                connection.tell("OPENED")
            if self.bundles.elsewhere(topic.bundle):
                self._follow()

        return open_it

    def _is_busy(self, topic: Topic, connection: Connection) -> bool:
        """Another consumer is served here, or by a member of the subscription's group in another process."""
        serving = self.consumers.get(topic.name)
        if serving is not None and not serving.connection.broken:
            return True
        if serving is not None:
            self._close_consumer(serving)
        return self.cut_off or bool(topic.members.keys() - {self.name})

    def _drop(self, connection: Connection) -> None:
        self.producers.pop(connection, None)
        for serving in list(self.consumers.values()):
            if serving.connection is connection:
                self._close_consumer(serving)

    def _close_consumer(self, serving: Serving) -> None:
        if not self.cut_off:
            self._save(serving)
            serving.topic.members.pop(self.name, None)
        del self.consumers[serving.topic.name]

    # Kafka --------------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        for connection in [*self.producers, *(serving.connection for serving in self.consumers.values())]:
            if connection.broken:
                self._drop(connection)
        if self.cut_off:
            for serving in self.consumers.values():
                self._deliver(serving)  # what it has read
            return
        for connection, topic, text in self.unsent:
            topic.log.append(text)
            connection.tell("RECEIPT", text)
        self.unsent.clear()
        for connection, url in self.moving:
            connection.tell("CLOSE", url)
        self.moving.clear()
        for serving in self.consumers.values():
            self._own(serving)

    def _own(self, serving: Serving) -> None:
        topic, now_s = serving.topic, self.world.now_s
        if self.name not in topic.members:  # thrown out: it joins again, and recovers
            serving.owns, serving.acknowledged, serving.given = False, set(), set()
        topic.members[self.name] = now_s
        if topic.owner() != self.name:
            return
        if not serving.owns:
            serving.owns, serving.saved_s = True, now_s
            serving.given = set(topic.committed)
        self._deliver(serving)
        if now_s - serving.saved_s >= SAVE_S:
            self._save(serving)

    def _deliver(self, serving: Serving) -> None:
        if not serving.owns:
            return
        for offset in range(len(serving.topic.log)):
            if offset not in serving.given:
                serving.given.add(offset)
                self.world.handed_out(self, serving.topic)
                serving.connection.tell("MESSAGE", offset)

    def _save(self, serving: Serving) -> None:
        serving.saved_s = self.world.now_s
        if serving.owns and serving.topic.owner() == self.name:
            serving.topic.committed |= serving.acknowledged
            serving.acknowledged.clear()


class Client:
    """An official client with one producer, or one Exclusive consumer."""

    def __init__(self, world: World, topic: Topic, *, produces: bool) -> None:
        self.world = world
        self.topic = topic
        self.produces = produces
        self.connection: Connection | None = None
        self.state = "idle"
        self.pending: deque[str] = deque()
        """Sent, or to be, and without a receipt."""
        self.unacknowledged: list[int] = []
        self.told_to = ""
        """The gateway to which a closing command sent it."""
        self._since_s = self._again_s = 0.0
        self._backoff_s = STEP_S
        self._tried = 0
        """Addresses of the service URL, one after the other."""

    def tick(self) -> None:
        now_s = self.world.now_s
        if self.connection is not None and self._has_lost(self.connection):
            self._retry()
        if self.state == "idle" and now_s >= self._again_s:
            self._begin()
        elif self.state == "open" and self.connection is not None and self.unacknowledged:
            offset = self.unacknowledged.pop(self.world.rng.randrange(len(self.unacknowledged)))
            self.connection.say("ACK", offset)

    def _has_lost(self, connection: Connection) -> bool:
        now_s = self.world.now_s
        waits = self.state != "open" and now_s - self._since_s > TIMEOUT_S
        return connection.broken or waits or now_s - connection.heard_s > KEEP_ALIVE_S

    def _begin(self) -> None:
        url, self.told_to = self.told_to, ""
        if url:
            self._go("OPEN", "opening", url)
        else:
            urls = self.world.service_urls()
            self._tried += 1
            self._go("LOOKUP", "looking", urls[self._tried % len(urls)])

    def _go(self, command: str, state: str, url: str) -> None:
        gateway = self.world.at(url)
        if gateway is None:
            self._retry()
            return
        if self.connection is not None:
            self.connection.end()
        self.connection, self.state, self._since_s = (
            Connection(self, gateway, self.world.now_s),
            state,
            self.world.now_s,
        )
        self.connection.say(command)

    def _retry(self) -> None:
        if self.connection is not None:
            self.connection.end()
        self.connection, self.state = None, "idle"
        self.unacknowledged.clear()
        self._again_s = self.world.now_s + self._backoff_s * self.world.rng.uniform(0.8, 1.2)
        self._backoff_s = min(2 * self._backoff_s, SESSION_S)

    def send(self, text: str) -> None:
        self.pending.append(text)
        if self.state == "open" and self.connection is not None:
            self.connection.say("SEND", text)

    def hear(self, kind: str, what: object) -> None:
        if kind == "LOOKED":
            self._go("OPEN", "opening", str(what))
        elif kind == "NOT_READY":
            self._retry()
        elif kind == "OPENED" and self.connection is not None:
            self.state, self._backoff_s = "open", STEP_S
            for text in self.pending:
                self.connection.say("SEND", text)
        elif kind == "CLOSE":
            self.unacknowledged.clear()
            self.told_to, self.state, self._again_s = str(what), "idle", self.world.now_s
            self.world.moved += 1
        elif kind == "RECEIPT" and what in self.pending:
            self.pending.remove(str(what))
        elif kind == "MESSAGE" and isinstance(what, int):
            self.unacknowledged.append(what)


class World:
    """What a history plays in; it hears of what gateways do, and says when that is wrong."""

    def __init__(self, rng: random.Random, topics: int) -> None:
        self.rng = rng
        self.now_s = 0.0
        self.fleet = FleetsGroup()
        self.gateways: list[Gateway] = []
        self.topics = [Topic(f"t{number}", rng.randrange(BUNDLES)) for number in range(topics)]
        kinds = range(rng.choice([2, 3]))
        self.clients = [Client(self, topic, produces=kind == 0) for topic in self.topics for kind in kinds]
        """A producer and one or two consumers of each topic, of which one is served at a time."""
        self.moved = 0
        """Clients that were told where to go."""
        self._begun = 0

    def begin_gateway(self, url: str = "") -> Gateway:
        self._begun += 1
        gateway = Gateway(self, f"g{self._begun}", url or f"pulsar://g{self._begun}")
        self.gateways.append(gateway)
        return gateway

    def living(self) -> list[Gateway]:
        return [gateway for gateway in self.gateways if gateway.alive]

    def at(self, url: str) -> Gateway | None:
        return next((gateway for gateway in self.living() if gateway.url == url), None)

    def answers(self, url: str) -> bool:
        gateway = self.at(url)
        return gateway is not None and self.now_s >= gateway.stopped_until

    def service_urls(self) -> list[str]:
        """Of the client's service URL; some of them may be dead."""
        return [gateway.url for gateway in self.gateways[-4:]]

    def tick(self) -> None:
        self.now_s += STEP_S
        self.fleet.expire(self.now_s)
        for topic in self.topics:
            topic.expire(self.now_s)
        acting: list[Gateway | Client] = [*self.living(), *self.clients]
        self.rng.shuffle(acting)
        for each in acting:
            if self.rng.random() < 0.8:
                each.tick()
        for gateway in self.living():
            self.keeps_none(gateway)

    # What gateways do ---------------------------------------------------------------------------------------------

    def ends(self, gateway: Gateway, *, late: bool) -> None:
        """It was told to; its clients were told where to go, where somebody was there for them."""
        others = [
            each
            for each in self.living()
            if each.url != gateway.url
            and self.fleet.knows(each.name)
            and self.now_s - max(self.fleet.joined_s[each.name], gateway.stopped_until) > 1  # it could know of them
        ]
        left = bool(gateway.producers or gateway.consumers)
        assert late or not (left and others), f"{gateway.name} ends with clients beside {others[0].name}"

    def keeps_none(self, gateway: Gateway) -> None:
        """Who is cut off for long ends its clients' connections, where others of the fleet are known to be there."""
        since_s = max(gateway.cut_since_s, gateway.stopped_until)
        late = gateway.cut_off and self.now_s - since_s > SESSION_S + DISCONNECTED_S + 1
        kept = bool(gateway.producers or gateway.consumers) and not gateway.bundles._alone
        assert not (late and kept and not gateway.stopping), (
            f"{gateway.name} keeps clients, cut off since {since_s:.1f}"
        )

    def looked_up(self, gateway: Gateway, since_s: float) -> None:
        took_s = self.now_s - max(since_s, gateway.stopped_until)
        assert took_s <= PATIENCE_S + 1, f"{gateway.name} answers a lookup after {took_s:.1f} s"

    def handed_out(self, gateway: Gateway, topic: Topic) -> None:
        """By the cursor's owner, or by one that could not hear yet that it is no more."""
        knows = self.now_s - max(gateway.stopped_until, gateway.cut_until) >= SESSION_S
        assert topic.owner() == gateway.name or not knows, f"{gateway.name} serves {topic.name} beside {topic.owner()}"
