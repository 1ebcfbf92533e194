//! Connections between servers, as the transport gives them to the core: three lanes in each
//! direction, each with a generation; frames in order or not at all; nothing of an older connection
//! behind a newer one's beginning (R11). Owns how long frames take, cuts, and how ends are noticed.
//!
//! What a cut holds back comes later, as TCP sends it again, unless the connection ends meanwhile.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use baton_consensus::Role;
use baton_peers::codec::{CloseReason, Frame, Hello, Lane, LogProof, Refusal};
use baton_peers::handshake::LocalServer;
use baton_peers::net::{Direction, EndCause, FramePermit, Link, PeerEvent, RefusedBy, SendError};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::bug::SeededBug;
use super::life::StopCause;
use super::mark;
use super::server_log::ShownPosition;
use super::state::{Cluster, PeerConnection, Presence, ServerSlot, State};

/// A connection on which nothing arrives for this long ends.
const SILENCE_LIMIT: Duration = Duration::from_secs(5);
/// Limit of an attempt to connect, and the pauses between attempts.
const DIAL_TIMEOUT: Duration = Duration::from_millis(300);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Between two batches of a stream of writes; and how long ago the newest one may be.
const STREAM_GAP: Range<Duration> = Duration::from_millis(12)..Duration::from_millis(90);
const JUST_NOW: Duration = Duration::from_millis(8);

/// Outcome of an attempt to connect.
enum DialOutcome {
    /// Connected when this says so.
    Connected(watch::Receiver<bool>),
    /// The machine is there, and no process.
    NoProcess,
    /// Nothing came back.
    Silence,
    /// The handshake was refused, or has led to another start of one of the two.
    Refused,
}

impl Cluster {
    /// From now on a process connects to these servers, and to no others but those that it calls
    /// back (R41).
    pub(super) fn connect_to(&self, (id, life): (u64, u64), ids: BTreeSet<u64>) {
        if let Some(seat) = self.state().seats.get_mut(&id)
            && seat.life == life
        {
            seat.named = ids;
        }
        self.dial_listed((id, life));
    }

    /// A server has connected to this process, and said this.
    fn connected_from(&self, (id, life): (u64, u64), hello: Hello) {
        if let Some(seat) = self.state().seats.get_mut(&id)
            && seat.life == life
            && seat.local.calls_back(&hello)
        {
            seat.unknown.insert(hello.from, hello);
            self.0.recorder.mark(mark::CALLED_BACK);
        }
        self.dial_listed((id, life));
    }

    /// Takes a change in this process's knowledge of the members.
    pub(super) fn members_changed(&self, (id, life): (u64, u64)) {
        let state = self.state();
        let has_unknown = state
            .seats
            .get(&id)
            .is_some_and(|seat| !seat.unknown.is_empty());
        drop(state);
        if has_unknown {
            self.dial_listed((id, life));
        }
    }

    /// Dials who is listed, and ends the connections to others.
    fn dial_listed(&self, (id, life): (u64, u64)) {
        let (process, new) = {
            let mut state = self.state();
            let Some(seat) = state.seats.get_mut(&id).filter(|seat| seat.life == life) else {
                return;
            };
            let local = &seat.local;
            seat.unknown.retain(|_, hello| local.calls_back(hello));
            let mut ids = seat.named.clone();
            ids.extend(seat.unknown.keys());
            ids.remove(&id);
            seat.peers.clone_from(&ids);
            let all = ids.iter().flat_map(|to| Lane::ALL.map(|lane| (*to, lane)));
            let new: Vec<(u64, Lane)> = all.filter(|key| seat.dialled.insert(*key)).collect();
            let process = seat.process.clone();
            state.end_where(CloseReason::Removed, |way| {
                way.from == id && !ids.contains(&way.to)
            });
            (process, new)
        };
        for (to, lane) in new {
            let dial = self.clone().dial((id, life), to, lane);
            tokio::spawn(process.run(dial));
        }
    }

    /// Keeps one lane to another server connected, for one process.
    async fn dial(self, (from, life): (u64, u64), to: u64, lane: Lane) {
        let mut pause = FIRST_PAUSE;
        loop {
            let latency = {
                let mut state = self.state();
                if !state.lives(from, life) || state.is_over {
                    return;
                }
                if let Some(seat) = state.seats.get_mut(&from)
                    && !seat.peers.contains(&to)
                {
                    seat.dialled.remove(&(to, lane));
                    return;
                }
                let range = state.setup.latency_ms;
                state.draw_ms(range) * 2
            };
            tokio::time::sleep(latency).await;
            match self.try_connect((from, life), to, lane) {
                DialOutcome::Connected(mut ended) => {
                    pause = FIRST_PAUSE;
                    // Dropped with the connection.
                    let _ = ended.wait_for(|ended| *ended).await;
                    continue;
                }
                DialOutcome::Silence => tokio::time::sleep(DIAL_TIMEOUT).await,
                DialOutcome::NoProcess => self.found_no_process(from, to),
                DialOutcome::Refused => {}
            }
            let most_ms = u64::try_from(pause.as_millis()).unwrap_or(1);
            let pause_ms = self.state().rng.u64(most_ms / 2..=most_ms);
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn try_connect(&self, (from, life): (u64, u64), to: u64, lane: Lane) -> DialOutcome {
        let mut state = self.state();
        if !state.lives(from, life) || state.is_cut(from, to) || state.is_cut(to, from) {
            return DialOutcome::Silence;
        }
        let (Some(ours), Some(theirs)) = (state.seats.get(&from), state.seats.get(&to)) else {
            return DialOutcome::Silence;
        };
        if theirs.waits && ours.waits {
            return DialOutcome::Silence;
        }
        if theirs.server.is_none() && !theirs.waits {
            return match theirs.refuses {
                true => DialOutcome::NoProcess,
                false => DialOutcome::Silence,
            };
        }
        if theirs.process.stands_still() {
            return DialOutcome::Silence;
        }
        let (our, their) = (ours.shown(state.setup.bug), theirs.shown(state.setup.bug));
        let hello = our.hello(to, lane, state.generations, 0);
        let answer = their.hello(from, lane, state.generations, 0);
        let refusal = their.check(&hello).err();
        let refusal = refusal.map(|refusal| (to, refusal));
        let refusal = refusal.or_else(|| Some((from, our.check(&answer).err()?)));
        // By mistake, another folder than the member's is taken for it.
        let refusal = refusal.filter(|_| state.setup.bug != Some(SeededBug::B19));
        let admitted = [(ours.waits, from), (theirs.waits, to)];
        let admitted = admitted.into_iter().find(|(waits, _)| *waits);
        if let Some((by, refusal)) = refusal {
            drop(state);
            self.refused(by, &refusal, (hello, answer));
            return DialOutcome::Refused;
        }
        if let Some((_, id)) = admitted {
            drop(state);
            self.admit(id);
            return DialOutcome::Refused;
        }
        let lives = (ours.life, theirs.life);
        let shown = (
            ShownPosition::by(&ours.local),
            ShownPosition::by(&theirs.local),
        );
        let offset_ms = theirs.skew_ms - ours.skew_ms;
        state.generations += 1;
        let generation = state.generations;
        let (queue, frames) = mpsc::unbounded_channel();
        let (ended, ends) = watch::channel(false);
        // What the receiver still has of an older one ends here.
        let older: Vec<u64> = state
            .ways
            .iter()
            .filter(|(_, way)| (way.from, way.to, way.lane) == (from, to, lane) && way.to_open)
            .map(|(generation, _)| *generation)
            .collect();
        for generation in older {
            state.close_to(generation, EndCause::Superseded);
        }
        let way = PeerConnection {
            from,
            to,
            lane,
            lives,
            hellos: (hello.clone(), answer.clone()),
            from_open: true,
            to_open: true,
            queue,
            queued_bytes: 0,
            last_due: Instant::now(),
            ended,
        };
        state.ways.insert(generation, way);
        state.shown_by(from, shown.1);
        state.shown_by(to, shown.0);
        for pair in [(from, to), (to, from)] {
            let presence = state.presence.entry(pair).or_default();
            *presence = Presence {
                was_open: true,
                ended_with_process: true,
            };
        }
        let link = |peer, direction| Link {
            peer,
            lane,
            direction,
            generation,
        };
        let outbound = PeerEvent::Connected {
            link: link(to, Direction::Outbound),
            hello: answer,
            clock_offset_ms: offset_ms,
        };
        state.notify(from, lives.0, outbound);
        let said = hello.clone();
        let inbound = PeerEvent::Connected {
            link: link(from, Direction::Inbound),
            hello,
            clock_offset_ms: -offset_ms,
        };
        state.notify(to, lives.1, inbound);
        drop(state);
        self.connected_from((to, lives.1), said);
        tokio::spawn(self.clone().carry(generation, frames));
        DialOutcome::Connected(ends)
    }

    /// `by` has refused a connection, which began with these hellos.
    fn refused(&self, by: u64, refusal: &Refusal, (hello, answer): (Hello, Hello)) {
        let (from, to) = (hello.from, hello.to);
        self.0.recorder.mark(mark::REFUSED);
        self.0
            .recorder
            .note(|| format!("s{by} refuses the connection of s{from} to s{to}: {refusal}"));
        let mut state = self.state();
        if let Refusal::OlderCopy {
            id, acknowledged, ..
        } = *refusal
        {
            self.0.recorder.mark(mark::OLD_COPY_REFUSED);
            if let Err(what) = state.refused_as_older_copy(id, acknowledged) {
                self.0.recorder.fail(&what);
            }
        }
        for (id, peer, said) in [(from, to, answer), (to, from, hello)] {
            let life = state.seats.get(&id).map_or(0, |seat| seat.life);
            let event = PeerEvent::Refused {
                peer: Some(peer),
                remote: format!("s{peer}"),
                by: match by == id {
                    true => RefusedBy::Us,
                    false => RefusedBy::Them,
                },
                refusal: refusal.clone(),
                hello: (by == id).then_some(said),
            };
            state.notify(id, life, event);
        }
    }

    /// Takes the frames of one connection to its far end, in order.
    async fn carry(self, generation: u64, mut frames: mpsc::UnboundedReceiver<(Instant, Frame)>) {
        while let Some((due, frame)) = frames.recv().await {
            tokio::time::sleep_until(due).await;
            loop {
                let changed = self.0.cut_changes.notified();
                let (is_open, is_cut) = {
                    let state = self.state();
                    let Some(way) = state.ways.get(&generation) else {
                        return;
                    };
                    let back = !way.to_open && state.is_cut(way.to, way.from);
                    (way.to_open, back || state.is_cut(way.from, way.to))
                };
                match (is_cut, is_open) {
                    (true, _) => changed.await,
                    (false, true) => break,
                    // A server that sends to a closed end finds out.
                    (false, false) => return self.state().close_from(generation, EndCause::Reset),
                }
            }
            self.state().deliver(generation, frame);
        }
    }

    /// A process has ended: its connections end as `power` says.
    pub(super) fn process_ended(&self, id: u64, power: StopCause) {
        let (mine, peers) = {
            let state = self.state();
            let mine: Vec<u64> = state
                .ways
                .iter()
                .filter(|(_, way)| way.from == id || way.to == id)
                .map(|(generation, _)| *generation)
                .collect();
            (mine, state.seats.keys().copied().collect::<Vec<u64>>())
        };
        for generation in &mine {
            // Its own ends are gone with it.
            let mut state = self.state();
            let Some(way) = state.ways.get_mut(generation) else {
                continue;
            };
            if way.from == id {
                way.from_open = false;
                way.ended.send_replace(true);
            } else {
                way.to_open = false;
            }
        }
        for peer in peers {
            if peer != id {
                let cluster = self.clone();
                let mine = mine.clone();
                tokio::spawn(async move {
                    cluster.notice_end(id, peer, mine, power).await;
                });
            }
        }
    }

    /// Has `peer` notice that connections with `id` are over: at once where the machine runs on,
    /// else when it is back, or by the silence.
    async fn notice_end(self, id: u64, peer: u64, ways: Vec<u64>, power: StopCause) {
        let latency = {
            let mut state = self.state();
            let range = state.setup.latency_ms;
            state.draw_ms(range)
        };
        tokio::time::sleep(latency).await;
        let quiet = Instant::now() + SILENCE_LIMIT;
        let cause = loop {
            let (is_cut, is_back) = {
                let state = self.state();
                let runs = state
                    .seats
                    .get(&id)
                    .is_some_and(|seat| seat.server.is_some());
                (state.is_cut(id, peer), runs)
            };
            if !is_cut && (power == StopCause::Stays || is_back) {
                break EndCause::Reset;
            }
            if Instant::now() >= quiet {
                self.0.recorder.mark(mark::SILENT);
                break EndCause::Silent;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        let mut state = self.state();
        for generation in ways {
            let Some(way) = state.ways.get(&generation) else {
                continue;
            };
            if way.from == peer {
                state.close_from(generation, cause.clone());
            } else if way.to == peer {
                state.close_to(generation, cause.clone());
            }
        }
    }

    /// An attempt to connect was refused by the machine: no process listens there.
    fn found_no_process(&self, from: u64, to: u64) {
        let mut state = self.state();
        let is_open = state.ways.values().any(|way| {
            ((way.from, way.to) == (from, to) && way.from_open)
                || ((way.from, way.to) == (to, from) && way.to_open)
        });
        let life = state.seats.get(&from).map_or(0, |seat| seat.life);
        let presence = state.presence.entry((from, to)).or_default();
        if presence.was_open && presence.ended_with_process && !is_open {
            presence.was_open = false;
            state.notify(from, life, PeerEvent::Gone { peer: to });
            drop(state);
            self.0.recorder.mark(mark::GONE);
        }
    }

    /// Breaks the connections between two servers. What is on its way is lost, or arrives before
    /// the next connection begins.
    pub(crate) fn reset(&self, one: u64, other: u64, keeps_what_travels: bool) {
        self.0
            .recorder
            .note(|| format!("connections of s{one} and s{other} break"));
        let mut state = self.state();
        for generation in state.between(one, other) {
            state.close_from(generation, EndCause::Reset);
            if !keeps_what_travels {
                state.close_to(generation, EndCause::Reset);
            }
        }
    }

    /// Nothing goes these ways for this long.
    pub(crate) fn cut(&self, ways: Vec<(u64, u64)>, length: Duration) {
        self.0
            .recorder
            .note(|| format!("ways are cut for {length:?}: {ways:?}"));
        self.cut_until(ways, tokio::time::sleep(length));
    }

    /// Nothing comes to `id` from any other server until it leads no more, `limit` at most, and for
    /// `behind` after that.
    pub(crate) fn deafen_leader(&self, id: u64, limit: Duration, behind: Duration) {
        self.0
            .recorder
            .note(|| format!("s{id} hears nobody until it leads no more, and for {behind:?}"));
        let cluster = self.clone();
        let deposed = async move {
            while cluster.leads(id) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        self.cut_until(self.ways_to(id), async move {
            // However it ends.
            let _ = tokio::time::timeout(limit, deposed).await;
            tokio::time::sleep(behind).await;
        });
    }

    /// A server that follows and has sent a batch just now, and another one some time before: a
    /// client of it writes without waiting for answers.
    pub(crate) fn streaming_follower(&self) -> Option<u64> {
        let leader = self.leader();
        let state = self.state();
        let now = Instant::now();
        let streams = |(before, newest): (Instant, Instant)| {
            now < newest + JUST_NOW && STREAM_GAP.contains(&(newest - before))
        };
        let mut all = state.streams.iter();
        let found = all.find(|(id, times)| Some(**id) != leader && streams(**times));
        found.map(|(id, _)| *id)
    }

    /// Returns the number of batches of this server that have come to one that did not lead.
    pub(crate) fn ignored_batches(&self, id: u64) -> u64 {
        self.state().ignored.get(&id).copied().unwrap_or(0)
    }

    /// The ways to a server from all others.
    pub(crate) fn ways_to(&self, id: u64) -> Vec<(u64, u64)> {
        let others = self.ids().into_iter().filter(|other| *other != id);
        others.map(|other| (other, id)).collect()
    }

    /// Nothing goes these ways until `end`.
    pub(crate) fn cut_until(
        &self,
        ways: Vec<(u64, u64)>,
        end: impl Future<Output = ()> + Send + 'static,
    ) {
        {
            let mut state = self.state();
            for way in &ways {
                *state.cuts.entry(*way).or_insert(0) += 1;
            }
        }
        for way in &ways {
            tokio::spawn(self.clone().fall_silent(*way));
        }
        let cluster = self.clone();
        tokio::spawn(async move {
            end.await;
            {
                let mut state = cluster.state();
                for way in &ways {
                    if let Some(count) = state.cuts.get_mut(way) {
                        *count = count.saturating_sub(1);
                    }
                }
            }
            cluster.0.cut_changes.notify_waiters();
        });
    }

    /// Ends the connections whose one end hears nothing for too long.
    async fn fall_silent(self, (from, to): (u64, u64)) {
        let until = Instant::now() + SILENCE_LIMIT;
        loop {
            let changed = self.0.cut_changes.notified();
            if !self.state().is_cut(from, to) {
                return;
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = tokio::time::sleep_until(until) => break,
            }
        }
        self.0.recorder.mark(mark::SILENT);
        let mut state = self.state();
        for generation in state.between(from, to) {
            // The end at `to` hears nothing, and closes; the other end notices that unless its own
            // way is cut too.
            let is_receiver = state.ways.get(&generation).is_some_and(|way| way.to == to);
            let both = !state.is_cut(to, from);
            if is_receiver || both {
                state.close_to(generation, EndCause::Silent);
            }
            if !is_receiver || both {
                state.close_from(generation, EndCause::Silent);
            }
        }
    }
}

impl ServerSlot {
    /// Returns the server's description of itself and of the members, without proofs where that is
    /// the seeded bug.
    fn shown(&self, bug: Option<SeededBug>) -> LocalServer {
        let mut local = self.local.clone();
        if bug == Some(SeededBug::B21) {
            local.proof = LogProof::default();
            local.term = 0;
            for member in &mut local.members {
                member.acknowledged_index = 0;
            }
        }
        local
    }
}

impl State {
    /// A server has sent a batch of its clients for the first time.
    pub(super) fn note_forward(&mut self, id: u64) {
        let now = Instant::now();
        let (before, newest) = self.streams.entry(id).or_insert((now, now));
        (*before, *newest) = (*newest, now);
    }

    /// Ends the connections of a server whose other ends its membership does not admit any more.
    pub(super) fn end_not_admitted(&mut self, id: u64) {
        let Some(local) = self.seats.get(&id).map(|seat| seat.local.clone()) else {
            return;
        };
        self.end_where(CloseReason::Removed, |way| {
            (way.from == id && !local.still_admits(&way.hellos.1))
                || (way.to == id && !local.still_admits(&way.hellos.0))
        });
    }

    /// Ends connections. Both ends notice it at once.
    fn end_where(&mut self, why: CloseReason, is_it: impl Fn(&PeerConnection) -> bool) {
        let ways = self.ways.iter().filter(|(_, way)| is_it(way));
        let found: Vec<u64> = ways.map(|(generation, _)| *generation).collect();
        for generation in found {
            self.close_from(generation, EndCause::Bye(why));
            self.close_to(generation, EndCause::Bye(why));
        }
    }

    /// The connections of two servers, in both directions.
    fn between(&self, one: u64, other: u64) -> Vec<u64> {
        let ways = self.ways.iter();
        let of_both = |way: &PeerConnection| {
            (way.from, way.to) == (one, other) || (way.from, way.to) == (other, one)
        };
        let found = ways.filter(|(_, way)| of_both(way));
        found.map(|(generation, _)| *generation).collect()
    }

    /// Puts a frame on its way.
    pub(super) fn send(&mut self, from: u64, to: u64, frame: Frame) -> Result<(), SendError> {
        let range = self.setup.latency_ms;
        let latency = self.draw_ms(range);
        let lane = frame.lane();
        let most_bytes = self.setup.lane_bytes;
        let open = |way: &&mut PeerConnection| {
            (way.from, way.to, way.lane) == (from, to, lane) && way.from_open
        };
        let way = self.ways.values_mut().rev().find(open);
        let way = way.ok_or(SendError::NotConnected)?;
        let bytes = frame.wire_bytes();
        if way.queued_bytes > 0 && way.queued_bytes + bytes > most_bytes {
            return Err(SendError::Full);
        }
        way.queued_bytes += bytes;
        way.last_due = way.last_due.max(Instant::now() + latency);
        // The carrier goes when the far end has closed.
        let _ = way.queue.send((way.last_due, frame));
        Ok(())
    }

    fn deliver(&mut self, generation: u64, frame: Frame) {
        let Some(way) = self.ways.get_mut(&generation).filter(|way| way.to_open) else {
            return;
        };
        way.queued_bytes = way.queued_bytes.saturating_sub(frame.wire_bytes());
        let (from, to, life) = (way.from, way.to, way.lives.1);
        let link = Link {
            peer: from,
            lane: way.lane,
            direction: Direction::Inbound,
            generation,
        };
        if matches!(frame, Frame::Forward(_)) {
            let at = self.seats.get(&to).and_then(|seat| seat.progress);
            if at.is_some_and(|at| at.role.role != Role::Leader) {
                *self.ignored.entry(from).or_insert(0) += 1;
            }
        }
        let held = FramePermit::nothing();
        self.notify(to, life, PeerEvent::Frame { link, frame, held });
    }

    /// The end that sends closes.
    fn close_from(&mut self, generation: u64, cause: EndCause) {
        let Some(way) = self.ways.get_mut(&generation).filter(|way| way.from_open) else {
            return;
        };
        way.from_open = false;
        way.ended.send_replace(true);
        let (id, life) = (way.from, way.lives.0);
        let link = Link {
            peer: way.to,
            lane: way.lane,
            direction: Direction::Outbound,
            generation,
        };
        self.ended(id, life, link, cause);
        self.forget(generation);
    }

    /// The end that receives closes.
    fn close_to(&mut self, generation: u64, cause: EndCause) {
        let Some(way) = self.ways.get_mut(&generation).filter(|way| way.to_open) else {
            return;
        };
        way.to_open = false;
        let (id, life) = (way.to, way.lives.1);
        let link = Link {
            peer: way.from,
            lane: way.lane,
            direction: Direction::Inbound,
            generation,
        };
        self.ended(id, life, link, cause);
        self.forget(generation);
    }

    fn ended(&mut self, id: u64, life: u64, link: Link, cause: EndCause) {
        let presence = self.presence.entry((id, link.peer)).or_default();
        presence.ended_with_process &= cause.is_end_of_process() || cause == EndCause::Superseded;
        let event = PeerEvent::Disconnected {
            link,
            cause,
            dropped: 0,
        };
        self.notify(id, life, event);
    }

    /// Drops what is known of a connection that is closed at both ends.
    fn forget(&mut self, generation: u64) {
        let way = self.ways.get(&generation);
        if way.is_some_and(|way| !way.from_open && !way.to_open) {
            self.ways.remove(&generation);
        }
    }

    fn notify(&self, id: u64, life: u64, event: PeerEvent) {
        let seat = self.seats.get(&id).filter(|seat| seat.life == life);
        if let Some(server) = seat.and_then(|seat| seat.server.as_ref()) {
            server.peer_event(event);
        }
    }
}
