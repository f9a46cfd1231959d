package transport

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate-io/headgate/source"
)

// LogIn gets credentials for request.URL from request.Provider, whose servers
// are reached like those of c; it fills in the rest of the request. What is issued is remembered.
// Errors are *[source.StepError] with the reason InvalidProviderConfiguration
// or AuthenticationFailed.
func (v *Vault) LogIn(ctx context.Context, login source.LoginFunc, c Config, request source.LoginRequest) (source.Credential, error) {
	client := Client(Config{TLS: c.TLS, Proxy: c.Proxy, Networks: c.Networks})
	defer client.CloseIdleConnections()
	request.Namespace, request.Client, request.OwnTrust = v.Namespace, client, c.TLS != nil
	issued, err := login(ctx, request)
	if err == nil {
		v.Conceal(issued.Username, issued.Password, issued.Token, issued.Refresh)
		return issued, nil
	}
	reason := "AuthenticationFailed"
	if errors.Is(err, source.ErrProvider) {
		reason = "InvalidProviderConfiguration"
	}
	return source.Credential{}, &source.StepError{Step: source.StepResolve, Reason: reason,
		Err: fmt.Errorf("log in with provider %s: %w", request.Provider, err)}
}
