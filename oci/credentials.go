package oci

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// provided reports whether a names a provider that issues credentials.
func (a Access) provided() bool { return a.Provider != "" && a.Provider != "generic" }

// keys returns the credentials for the repository at.
func (a Access) keys(ctx context.Context, at address, network transport.Config, env source.Env, v *transport.Vault) (credentials, error) {
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
		out.Credential, err = a.login(ctx, at, network, env, v)
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
func (a Access) login(ctx context.Context, at address, network transport.Config, env source.Env, v *transport.Vault) (source.Credential, error) {
	if env.Login == nil {
		return source.Credential{}, &source.StepError{Step: source.StepResolve, Reason: "InvalidProviderConfiguration",
			Err: fmt.Errorf("%w: spec.provider: this program knows no provider %s", source.ErrInvalid, a.Provider)}
	}
	if a.Insecure && !isLoopback(at.host) {
		return source.Credential{}, &source.StepError{Step: source.StepResolve, Reason: "InvalidProviderConfiguration",
			Err: fmt.Errorf("%w: spec.insecure: what provider %s issues is not sent without TLS: remove it, or spec.provider", source.ErrInvalid, a.Provider)}
	}
	return v.LogIn(ctx, env.Login, network, source.LoginRequest{
		Provider: a.Provider, URL: &url.URL{Scheme: "oci", Host: at.host, Path: "/" + at.path}, ServiceAccount: a.ServiceAccount,
	})
}

// isLoopback reports whether host, HOST[:PORT], is an address of this machine.
func isLoopback(host string) bool {
	ip, err := netip.ParseAddr((&url.URL{Host: host}).Hostname())
	return err == nil && ip.IsLoopback()
}

const (
	maxConfig = 1 << 20 // bytes, as much as a Secret has
	maxLogins = 1000
)

// An entry has the credentials for a registry, or for a part of it.
type entry struct {
	host       string // HOST[:PORT]; its labels may be patterns
	path       string // of a repository or of a folder of them, "" for all
	credential source.Credential
	secret     string // that it is of
}

// A keychain has entries of several Secrets, the most specific one first.
type keychain []entry

// login is an entry as docker login writes it.
type login struct {
	Auth          string `json:"auth"`
	Username      string `json:"username"`
	Password      string `json:"password"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// readKeys returns the entries of a Secret. Errors are *[transport.SecretError].
func readKeys(s transport.Secret) (keychain, error) {
	problem := func(key, format string, args ...any) error {
		return &transport.SecretError{Secret: s.Name, Key: key, Problem: fmt.Sprintf(format, args...)}
	}
	text, key, legacy, err := transport.Registries(s.Name, s.Secret)
	if err != nil {
		return nil, err
	}
	if len(text) > maxConfig {
		return nil, problem(key, "has %d bytes, at most %d are allowed", len(text), maxConfig)
	}
	logins, err := decodeLogins(text, legacy)
	if err != nil {
		return nil, problem(key, "is no JSON as docker login writes it") // err could show a value
	}
	if len(logins) > maxLogins {
		return nil, problem(key, "has %d entries, at most %d are allowed", len(logins), maxLogins)
	}
	var all keychain
	for _, name := range slices.Sorted(maps.Keys(logins)) {
		if logins[name] == (login{}) {
			continue // docker keeps what it has elsewhere
		}
		e, why := logins[name].entry(name)
		if why != "" {
			return nil, problem(key, "entry %.100q %s", name, why)
		}
		e.secret = s.Name
		all = append(all, e)
	}
	return all, nil
}

// decodeLogins returns the logins by the name of their registry.
func decodeLogins(text []byte, legacy bool) (logins map[string]login, err error) {
	if legacy {
		err = json.Unmarshal(text, &logins)
		return logins, err
	}
	var config struct {
		Auths map[string]login `json:"auths"`
	}
	err = json.Unmarshal(text, &config)
	return config.Auths, err
}

// entry returns l, the login for name, and what is wrong with it.
func (l login) entry(name string) (e entry, why string) {
	e.host, e.path = scopeOf(name)
	e.credential = source.Credential{Username: l.Username, Password: l.Password, Refresh: l.IdentityToken, Token: l.RegistryToken}
	if l.Auth != "" {
		pair, err := base64.StdEncoding.DecodeString(l.Auth)
		if err != nil {
			pair, err = base64.RawStdEncoding.DecodeString(l.Auth)
		}
		user, password, found := strings.Cut(strings.TrimRight(string(pair), "\x00"), ":")
		if err != nil || !found {
			return e, "has an auth that is not the base64 of USER:PASSWORD"
		}
		e.credential.Username, e.credential.Password = user, password
	}
	for _, value := range []string{e.credential.Username, e.credential.Password, l.IdentityToken, l.RegistryToken} {
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return e, "has a control character in it: look for a line break at the end"
		}
	}
	return e, ""
}

// scopeOf returns what the name of an entry stands for: [https://]HOST[:PORT][/PATH],
// where the path v1 or v2 is that of the API.
func scopeOf(name string) (host, folder string) {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "https://"), "http://")
	host, folder, _ = strings.Cut(name, "/")
	for _, version := range []string{"v1", "v2"} {
		if rest, ok := strings.CutPrefix(folder+"/", version+"/"); ok {
			folder = rest
			break
		}
	}
	if hubNames[host] {
		host = hub
	}
	return host, strings.Trim(folder, "/")
}

// find returns the credentials for the repository at, those of the most
// specific entry; among equals the first counts.
func (k keychain) find(at address) (entry, bool) {
	for _, e := range k {
		if e.matches(at) {
			return e, true
		}
	}
	return entry{}, false
}

// has reports whether an entry is for HOST[:PORT] itself, patterns aside.
func (k keychain) has(host string) bool {
	return slices.ContainsFunc(k, func(e entry) bool { return strings.EqualFold(e.host, host) })
}

// names reports whether an entry is for HOST itself, on any port.
func (k keychain) names(host string) bool {
	return slices.ContainsFunc(k, func(e entry) bool {
		return strings.EqualFold((&url.URL{Host: e.host}).Hostname(), host)
	})
}

func (e entry) matches(at address) bool {
	inside := e.path == "" || at.path == e.path || strings.HasPrefix(at.path, e.path+"/")
	return inside && matchHost(e.host, at.host)
}

// matchHost reports whether host matches the pattern: label by label, and the same port.
func matchHost(pattern, host string) bool {
	if pattern == host {
		return true
	}
	pattern, port, _ := strings.Cut(pattern, ":")
	host, of, _ := strings.Cut(host, ":")
	labels, patterns := strings.Split(host, "."), strings.Split(pattern, ".")
	if port != of || len(labels) != len(patterns) {
		return false
	}
	for i := range labels {
		if ok, err := path.Match(patterns[i], labels[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

// sort puts the more specific entries first: the longer path, then the host
// without a pattern, then the longer one.
func (k keychain) sort() {
	slices.SortStableFunc(k, func(a, b entry) int {
		return cmp.Or(cmp.Compare(len(b.path), len(a.path)),
			cmp.Compare(wildcards(a.host), wildcards(b.host)),
			cmp.Compare(len(b.host), len(a.host)))
	})
}

func wildcards(host string) int {
	return strings.Count(host, "*") + strings.Count(host, "?") + strings.Count(host, "[")
}
