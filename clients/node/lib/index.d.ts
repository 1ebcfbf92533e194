// Types of the client. All times are milliseconds.

/** Base class of the client's errors. Each names the thing, the cause and the next step. */
export class BatonError extends Error {
  readonly thing: string;
  readonly cause: string;
  readonly nextStep: string;
}

/** Somebody else holds it, and the caller did not want to wait longer. */
export class NotAcquired extends BatonError {
  /** The holder's name, where it is known. */
  readonly heldBy?: string;
}

/** The agent or its servers do not answer. */
export class Unavailable extends BatonError {
  /** The time since when they do not, where it is known. */
  readonly since?: Date;
}

/** The lock, term, claim or membership is held no longer. */
export class Lost extends BatonError {
  readonly reason: string;
}
export { Lost as LockLost };

/** A change may or may not have been applied: read before you repeat it. */
export class Unknown extends BatonError {
  readonly what: string;
}

/** The request cannot be carried out as it is. */
export class Refused extends BatonError {
  readonly why: string;
}

export type Data = string | Uint8Array;

export interface WaitOptions {
  /** The longest wait; 0 does not wait. Without it the wait has no end. */
  wait?: number;
  /** Ends the wait when it is aborted. */
  signal?: AbortSignal;
  /** Shown to others; otherwise it is the program's. */
  name?: string;
  sessionTimeout?: number;
}

export interface Position {
  /** Number of holders and waiters before the caller. */
  place: number;
  /** The holder's node, where it is known. */
  heldBy: string | null;
}

export interface LockOptions extends WaitOptions {
  mode?: "exclusive" | "read" | "write" | "slot";
  /** Number of holders at a time. */
  slots?: number;
  /** Time for which nobody gets an exclusive lock after its holder has died. */
  lockDelay?: number;
  /** Receives each change of the position in the wait queue. */
  onWait?: (position: Position) => void;
}

export interface ElectOptions extends WaitOptions {
  /** Shown to those who watch the election. */
  data?: Data;
  onWait?: (position: Position) => void;
}

export type Write =
  | { op: "create"; path: string; data?: Data }
  | { op: "set"; path: string; data?: Data; version?: number }
  | { op: "delete" | "check"; path: string; version?: number };

declare class Held {
  protected constructor();
  readonly path: string;
  /** Aborted when it is lost, with a `Lost` as its reason; not when it is released. */
  readonly signal: AbortSignal;
  /** The reason why it is held no longer, if so. */
  readonly lost: Lost | undefined;
  /** Throws `Lost` unless it is held now, without waiting for anything. */
  check(): void;
}

/** Guard of a lock or of a term of an election. */
export class Guard extends Held implements AsyncDisposable {
  readonly id: string;
  /** Fencing token: greater than that of each earlier holder. */
  readonly token: number;
  /** Number of the term of an election. */
  readonly term: number | undefined;
  /** Whether somebody has asked the holder to release. */
  readonly releaseRequested: boolean;
  /** Applies writes together if the lock is still held. */
  txn(writes: readonly Write[]): Promise<void>;
  /** Releases, and waits until a server has confirmed it. A second call does nothing. */
  release(): Promise<void>;
  /** Runs a function with the signal of the loss. Throws `Lost` if it was lost meanwhile. */
  run<T>(work: (signal: AbortSignal) => Promise<T> | T): Promise<T>;
  /**
   * Runs a command in a process group of its own, and returns its exit code or the name of the
   * signal that ended it. Kills the group at the loss, and what is left of it at the end. If this
   * process dies first, the command keeps the lock.
   */
  run(argv: readonly [string, ...string[]], options?: RunOptions): Promise<number | string>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** Options of `child_process.spawn`. */
export interface RunOptions {
  cwd?: string;
  env?: Record<string, string | undefined>;
  stdio?: "inherit" | "ignore" | readonly unknown[];
}

/** Claim on an item of a work queue. */
export class Item extends Held implements AsyncDisposable {
  readonly id: string;
  readonly token: number;
  /** Number of times that the item was taken. */
  readonly attempt: number;
  readonly data: Buffer;
  /** Removes the item: it is done. */
  ack(): Promise<void>;
  /** Gives the item back for after `delay`, or to the dead letters after its last attempt. */
  nack(reason?: string, delay?: number): Promise<void>;
  /** Extends the claim by the time that it had at first. */
  extend(): Promise<void>;
  /** Gives the item back unless it is settled. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** Membership. It has no lease: its loss may be noticed late. */
export class Membership extends Held implements AsyncDisposable {
  /** Leaves, and waits until the member is gone. */
  leave(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface Member {
  id: string;
  data: string;
  session: string;
}

export interface PutOptions {
  /** Lower ones are taken first. */
  priority?: number;
  /** Time before the item can be taken. */
  delay?: number;
  /** A second item with the same id is the first one. */
  id?: string;
  /** Number of times that the item is given to consumers before it is a dead letter. */
  maxAttempts?: number;
}

export interface TakeOptions extends WaitOptions {
  /** Time for which a claim lasts without `extend`. */
  visibility?: number;
}

export interface Queue {
  /** Puts an item, and returns its id. */
  put(data: Data, options?: PutOptions): Promise<string>;
  /** Claims the next item. */
  take(options?: TakeOptions): Promise<Item>;
}

export interface Counter {
  /** Adds, and returns the value. */
  add(delta?: number): Promise<number>;
  get(): Promise<number>;
}

export interface LockNode {
  path: string;
  mode: string;
  token?: number;
  record?: { name?: string; host?: string; pid?: number };
}

export interface LockState {
  path: string;
  exists: boolean;
  holders: LockNode[];
  waiters: LockNode[];
}

export interface HoldOptions {
  /** Token of a lock that is held already, and goes on being held. */
  token?: number;
  wait?: number;
  name?: string;
}

/** The agent that listens on a socket: by default this user's, or else the machine's. */
export class Agent {
  constructor(socket?: string);
  /** The socket that was given. */
  readonly socket?: string;
  /** Acquires a lock: exclusive, or of `mode` `read` or `write`, or one of several `slots`. */
  lock(path: string, options?: LockOptions): Promise<Guard>;
  /** Acquires leadership. */
  elect(path: string, options?: ElectOptions): Promise<Guard>;
  /** Makes this process a member. */
  join(path: string, id: string, options?: { data?: Data; sessionTimeout?: number }): Promise<Membership>;
  /** The members at a path: a list at each change. */
  members(path: string, options?: { signal?: AbortSignal }): AsyncGenerator<Member[], void, void>;
  queue(path: string): Queue;
  counter(path: string): Counter;
  /** Holds an exclusive lock beyond the end of this process, and returns its token. */
  hold(path: string, ttl: number, options?: HoldOptions): Promise<number>;
  /** Releases a lock that `hold` holds, from any process of this user. */
  releaseHold(path: string, token: number): Promise<void>;
  /** Whether a token is that of the present holder. */
  tokenIsCurrent(path: string, token: number): Promise<boolean>;
  /** The holders of a lock and those who wait for it. */
  locks(path: string): Promise<LockState>;
  /** State of the agent and of its sessions. */
  health(): Promise<Record<string, unknown>>;
}

/** The agent of the module's functions. */
export const agent: Agent;
export const lock: Agent["lock"];
export const elect: Agent["elect"];
export const join: Agent["join"];
export const members: Agent["members"];
export const queue: Agent["queue"];
export const counter: Agent["counter"];
export const hold: Agent["hold"];
export const releaseHold: Agent["releaseHold"];
export const tokenIsCurrent: Agent["tokenIsCurrent"];
export const locks: Agent["locks"];
export const health: Agent["health"];
