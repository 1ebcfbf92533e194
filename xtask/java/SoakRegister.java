import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Objects;
import org.apache.zookeeper.data.Stat;

/**
 * Who holds one recipe now, judged under one lock in one process.
 *
 * <p>A client whose session lives holds for as long as its library says so. One whose session may have been lost is held to what a
 * server guarantees: a claim counts while its znode stands with the claim's czxid, as a client that reaches the server directly
 * sees it. A claim without that is stale: the library's own (H33, H34).
 */
final class SoakRegister {
    private static final class Claim {
        final SoakClient who;
        final SoakTurns.Turn turn;
        final int weight;
        final String node;
        final long token;

        Claim(SoakClient who, SoakTurns.Turn turn, int weight, String node, long token) {
            this.who = who;
            this.turn = turn;
            this.weight = weight;
            this.node = node;
            this.token = token;
        }
    }

    private final String name;
    private final int capacity;
    private final SoakClient judge;
    private final List<Claim> held = new ArrayList<>();
    private long lastToken;
    private SoakClient last;
    int turns;
    int handOvers;
    int stale;

    SoakRegister(String name, int capacity, SoakClient judge) {
        this.name = name;
        this.capacity = capacity;
        this.judge = judge;
    }

    /** Notes a turn that has begun; false if by now the library itself, or a lost session, says that it has not. */
    boolean enter(SoakClient who, SoakTurns.Turn turn, int weight) throws Exception {
        String node = turn.node();
        Stat stat = node == null ? null : who.session.checkExists().forPath(node);
        synchronized (this) {
            if (!turn.held() || !Objects.equals(node, turn.node())) {
                return false;
            }
            if (stat == null || stat.getEphemeralOwner() != who.sessionId()) {
                if (!who.mayLoseSession) {
                    CuratorSoak.broken(name, who.name + " holds without a znode of its own: " + node);
                }
                stale++;
                return false;
            }
            Claim claim = new Claim(who, turn, weight, node, stat.getCzxid());
            if (!judge(claim)) {
                stale++;
                return false;
            }
            if (weight == capacity) {
                lastToken = claim.token;
            }
            held.add(claim);
            turns++;
            handOvers += last != null && last != who ? 1 : 0;
            last = who;
            return true;
        }
    }

    /** What ends a turn, before its release or when the library says that it was lost. */
    synchronized void leave(SoakTurns.Turn turn) {
        held.removeIf(claim -> claim.turn == turn);
    }

    private boolean judge(Claim claim) throws Exception {
        int weight = claim.weight;
        for (Claim other : held) {
            weight += other.weight;
        }
        if (weight <= capacity && claim.token > lastToken) {
            return true;
        }
        if (!stands(claim)) {
            return false;
        }
        for (Iterator<Claim> others = held.iterator(); others.hasNext(); ) {
            Claim other = others.next();
            if (!stands(other)) {
                others.remove();
                stale++;
                weight -= other.weight;
            }
        }
        if (weight > capacity) {
            CuratorSoak.broken(name, claim.who.name + " holds " + claim.node + " beside " + held.get(0).who.name + "'s "
                    + held.get(0).node);
        }
        if (claim.token <= lastToken) {
            CuratorSoak.broken(name, claim.who.name + " was granted czxid " + claim.token + " after " + lastToken);
        }
        return true;
    }

    private boolean stands(Claim claim) throws Exception {
        if (!claim.who.mayLoseSession) {
            return true;
        }
        Stat stat = judge.newest(claim.node);
        return stat != null && stat.getCzxid() == claim.token;
    }
}
