package baton

import (
	"errors"
	"fmt"
	"time"
)

// Kinds of an [Error], for [errors.Is].
var (
	// ErrNotAcquired: somebody else holds it, and the caller did not want to wait longer.
	ErrNotAcquired = errors.New("not acquired")
	// ErrUnavailable: the agent or its servers do not answer.
	ErrUnavailable = errors.New("unavailable")
	// ErrLost: the lock, term, claim or membership is held no longer.
	ErrLost = errors.New("lost")
	// ErrUnknown: a change may or may not have been applied; read before you repeat it.
	ErrUnknown = errors.New("outcome unknown")
	// ErrRefused: the request cannot be carried out as it is.
	ErrRefused = errors.New("refused")
)

// Error names the thing, the cause and the next step, in that order.
type Error struct {
	Kind                   error
	Thing, Cause, NextStep string
	// HeldBy is the holder's name, where it is known, for [ErrNotAcquired].
	HeldBy string
	// Since is the time since when nobody answers, where it is known, for [ErrUnavailable].
	Since time.Time
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s; %s", e.Thing, e.Cause, e.NextStep) }

// Unwrap returns the kind of the error.
func (e *Error) Unwrap() error { return e.Kind }

func refused(thing, cause, nextStep string) *Error {
	return &Error{Kind: ErrRefused, Thing: thing, Cause: cause, NextStep: nextStep}
}

func silent(agent string, cause error) *Error {
	text, next := fmt.Sprintf("no answer of the agent: %v", cause), "start it: baton agent"
	return &Error{Kind: ErrUnavailable, Thing: agent, Cause: text, NextStep: next, Since: time.Now()}
}
