package io.github.batonlocks;

/** Membership. It has no lease: its loss may be noticed late. {@link #close} leaves. */
public final class Membership extends Held {
    Membership(Grant grant) { super(grant); }
}
