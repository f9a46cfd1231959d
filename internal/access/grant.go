package access

import "crypto/x509"

// A Grant is what one caller may do. The zero Grant allows nothing.
type Grant[S any] struct {
	Actor string // its name in the file; "" when everybody may do everything

	all    bool       // everything
	caller *caller[S] // what else

	token digest            // by which it was given, or
	leaf  *x509.Certificate // the certificate
}

// All returns the grant of one who may do everything.
func All[S any]() Grant[S] { return Grant[S]{all: true} }

// All reports whether the caller may do everything.
func (g Grant[S]) All() bool { return g.all }

// Scope returns what the file says that the caller may do, which is not to be
// changed; nil when that is nothing, or everything.
func (g Grant[S]) Scope() *S {
	if g.caller == nil {
		return nil
	}
	return &g.caller.Scope
}
