package oci

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// provided reports whether a names a provider that issues credentials.
func (a Access) provided() bool { return a.Provider != "" && a.Provider != "generic" }

// keys returns the credentials for the repository at.
func (a Access) keys(ctx context.Context, at address, way transport.Config, env source.Env, v *transport.Vault) (credentials, error) {
	chain, where, err := a.keychain(ctx, at, v)
	if err != nil {
		return credentials{}, err
	}
	out := credentials{chain: chain, origin: where}
	e, found := chain.find(at)
	switch {
	case found:
		out.Credential, out.origin = e.credential, "secret "+e.secret
	case a.provided():
		out.origin = "provider " + a.Provider
		out.Credential, err = a.login(ctx, at, way, env, v)
	case where != "":
		out.origin = fmt.Sprintf("%s holds no entry for %s", where, at)
	case env.Keychain != nil:
		out.origin = "the user's keychain has none for " + at.host
		if out.Credential, err = env.Keychain(ctx, at.host); err != nil {
			err = fmt.Errorf("keychain: credentials for %s: %w", at.host, err)
		} else if !out.none() {
			out.origin = "the user's keychain"
		}
	default:
		out.origin = "set spec.secretRef if the repository is private"
	}
	c := out.Credential
	v.Conceal(c.Password, c.Token, c.Refresh)
	if c.Password != "" {
		v.Conceal(base64.StdEncoding.EncodeToString([]byte(c.Username + ":" + c.Password)))
	}
	return out, err
}

// keychain returns the entries of the Secrets that a names, those of a user name
// for the repository at, and where they are from.
func (a Access) keychain(ctx context.Context, at address, v *transport.Vault) (all keychain, where string, err error) {
	var secrets []transport.Secret
	if a.Secret != nil {
		s, err := v.Read(ctx, a.Secret, "spec.secretRef")
		if err != nil {
			return nil, "", err
		}
		where = "secret " + s.Name
		if e, ok, err := a.user(s, at); err != nil {
			return nil, "", err
		} else if ok {
			all = append(all, e)
		} else {
			secrets = append(secrets, s)
		}
	}
	if a.ServiceAccount != "" {
		pull, err := v.PullSecrets(ctx, a.ServiceAccount, "spec.serviceAccountName")
		if err != nil && !(a.provided() && errors.Is(err, fs.ErrNotExist)) { // with a provider the account is an identity
			return nil, "", err
		}
		secrets = append(secrets, pull...)
		if where != "" {
			where += " and "
		}
		where += "service account " + v.Namespace + "/" + a.ServiceAccount
	}
	for _, s := range secrets {
		entries, err := readKeys(s)
		if err != nil {
			return nil, "", err
		}
		all = append(all, entries...)
	}
	all.sort()
	return all, where, nil
}

// user returns the user name and password in s, for the registry of the
// repository at; ok is false when s is to be read as docker login writes it.
func (a Access) user(s transport.Secret, at address) (e entry, ok bool, err error) {
	if !a.UserSecret {
		return entry{}, false, nil
	}
	auth, ok, err := transport.UserAuth(s.Name, s.Secret)
	return entry{host: at.host, secret: s.Name, credential: source.Credential{Username: auth.Username, Password: auth.Password}}, ok, err
}

// login gets credentials from the provider.
func (a Access) login(ctx context.Context, at address, way transport.Config, env source.Env, v *transport.Vault) (source.Credential, error) {
	if env.Login == nil {
		return source.Credential{}, &source.StepError{Step: source.StepResolve, Reason: "InvalidProviderConfiguration",
			Err: fmt.Errorf("%w: spec.provider: this program knows no provider %s", source.ErrInvalid, a.Provider)}
	}
	if a.Insecure && !near(at.host) {
		return source.Credential{}, &source.StepError{Step: source.StepResolve, Reason: "InvalidProviderConfiguration",
			Err: fmt.Errorf("%w: spec.insecure: what provider %s issues is not sent without TLS: remove it, or spec.provider", source.ErrInvalid, a.Provider)}
	}
	return v.LogIn(ctx, env.Login, way, source.LoginRequest{
		Provider: a.Provider, URL: &url.URL{Scheme: "oci", Host: at.host, Path: "/" + at.path}, ServiceAccount: a.ServiceAccount,
	})
}

// near reports whether what is sent to host, HOST[:PORT], stays on the machine.
func near(host string) bool {
	ip, err := netip.ParseAddr((&url.URL{Host: host}).Hostname())
	return err == nil && ip.IsLoopback()
}
