package baton

import (
	"errors"
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

func (e *Error) Error() string { return e.Thing + ": " + e.Cause + "; " + e.NextStep }

// Unwrap returns the kind of the error.
func (e *Error) Unwrap() error { return e.Kind }

// readFirst is the next step after an [ErrUnknown].
const readFirst = "read before you repeat it"

func newError(kind error, thing, cause, nextStep string) *Error {
	return &Error{Kind: kind, Thing: thing, Cause: cause, NextStep: nextStep}
}
