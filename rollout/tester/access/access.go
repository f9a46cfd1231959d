// Package access says who may do what with a test runner.
package access

import (
	"errors"
	"net/http"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

var errTODO = errors.New("not built yet")

// ErrUnknown is a caller who did not say who it is, or whose credential is not known: 401.
// ErrForbidden is one who may not do what it asks for: 403.
var (
	ErrUnknown   = errors.New("no valid credential")
	ErrForbidden = errors.New("not allowed")
)

// A Guard knows the callers.
type Guard struct{}

// Identify returns the grant of a request: by client certificate, bearer token,
// password of basic authentication, query parameter token, path prefix
// /token/TOKEN/, session cookie, or the token of the payload's metadata. It removes the
// credential from the request. Without any configured caller everybody has everything.
func (g *Guard) Identify(r *http.Request, payloadToken string) (Grant, error) {
	return Grant{}, errTODO
}

// A Grant is what one caller may do.
type Grant struct {
	Actor string
}

// Run, Check, Change and See return nil or an error that wraps ErrForbidden.
func (g Grant) Run(namespace, taskType string) error { return errTODO }
func (g Grant) Check(k api.Key) error                { return errTODO }
func (g Grant) Change(k api.Key) error               { return errTODO }
func (g Grant) See(namespace string) error           { return errTODO }
