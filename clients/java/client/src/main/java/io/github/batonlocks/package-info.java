/**
 * Locks, elections, queues, membership and counters of Baton, through the agent of this machine
 * ({@code baton agent}). Begin with {@link io.github.batonlocks.Baton#lock}.
 */
package io.github.batonlocks;
