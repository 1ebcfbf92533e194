// Errors of the client. Each names the thing, the cause and the next step, in that order.

/** Base class of the client's errors. */
export class BatonError extends Error {
  constructor(thing, cause, nextStep) {
    super(`${thing}: ${cause}; ${nextStep}`, { cause });
    this.name = this.constructor.name;
    this.thing = thing;
    this.nextStep = nextStep;
  }
}

export class NotAcquired extends BatonError {
  heldBy = undefined;
}

export class Unavailable extends BatonError {
  since = undefined;
}

export class Lost extends BatonError {
  get reason() {
    return this.cause;
  }
}

export class Unknown extends BatonError {
  get what() {
    return this.thing;
  }
}

export class Refused extends BatonError {
  get why() {
    return this.cause;
  }
}

/** The agent does not answer, or not as one. */
export class AgentSilent extends Unavailable {
  constructor(agent, cause) {
    super(agent, `no answer of the agent: ${cause}`, "start it: baton agent");
    this.name = "Unavailable";
    this.since = new Date();
  }
}
