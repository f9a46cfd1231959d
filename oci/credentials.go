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

	"oras.land/oras-go/v2/registry"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// credentials are the credentials for a registry, with their origin.
type credentials struct {
	source.Credential
	chain  keychain // all entries, including those for other hosts
	origin string   // the source of the credentials, or where they were looked for; for messages
}

// empty reports whether there are no credentials.
func (c *credentials) empty() bool {
	return c.Username == "" && c.Password == "" && c.Token == "" && c.Refresh == ""
}

// hasProvider reports whether a names a provider that issues credentials.
func (a Access) hasProvider() bool { return a.Provider != "" && a.Provider != "generic" }

// credentials returns the credentials for the repository at.
func (a Access) credentials(ctx context.Context, at registry.Reference, network transport.Config, env source.Env, v *transport.SecretReader) (out credentials, err error) {
	if out.chain, out.origin, err = a.keychain(ctx, at, v); err != nil {
		return out, err
	}
	e, found := out.chain.find(at)
	switch {
	case found:
		out.Credential, out.origin = e.credential, "secret "+e.secret
	case a.hasProvider():
		out.origin = "provider " + a.Provider
		out.Credential, err = a.login(ctx, at, network, env, v)
	case out.origin != "":
		out.origin += fmt.Sprintf(" holds no entry for %s", at)
	case env.Keychain != nil:
		out.origin = "the user's keychain has none for " + at.Registry
		if out.Credential, err = env.Keychain(ctx, at.Registry); err != nil {
			err = fmt.Errorf("keychain: credentials for %s: %w", at.Registry, err)
		} else if !out.empty() {
			out.origin = "the user's keychain"
		}
	default:
		out.origin = "set spec.secretRef if the repository is private"
	}
	v.Conceal(out.Password, out.Token, out.Refresh)
	if out.Password != "" {
		v.Conceal(base64.StdEncoding.EncodeToString([]byte(out.Username + ":" + out.Password)))
	}
	return out, err
}

// keychain returns the entries of the Secrets that a names, and the names of these Secrets
// for messages. A user name in a Secret becomes an entry for the registry of at.
func (a Access) keychain(ctx context.Context, at registry.Reference, v *transport.SecretReader) (all keychain, where string, err error) {
	s, err := v.Read(ctx, a.Secret, "spec.secretRef")
	if err != nil {
		return nil, "", err
	}
	if s.Name != "" {
		where = "secret " + s.Name
		if all, err = a.entries(s, at); err != nil {
			return nil, "", err
		}
	}
	if a.ServiceAccount != "" {
		pull, err := v.PullSecrets(ctx, a.ServiceAccount, "spec.serviceAccountName")
		if err != nil && !(a.hasProvider() && errors.Is(err, fs.ErrNotExist)) { // with a provider the account is an identity
			return nil, "", err
		}
		for _, s := range pull {
			entries, err := readKeys(s)
			if err != nil {
				return nil, "", err
			}
			all = append(all, entries...)
		}
		if where != "" {
			where += " and "
		}
		where += "service account " + v.Namespace + "/" + a.ServiceAccount
	}
	all.sort()
	return all, where, nil
}

// entries returns the entries of spec.secretRef. If a.UserSecret is set, the Secret may
// contain a user name and a password instead.
func (a Access) entries(s transport.Secret, at registry.Reference) (keychain, error) {
	if a.UserSecret {
		if auth, ok, err := transport.UserAuth(s.Name, s.Secret); ok || err != nil {
			return keychain{{host: at.Registry, secret: s.Name, credential: source.Credential{Username: auth.Username, Password: auth.Password}}}, err
		}
	}
	return readKeys(s)
}

// login gets credentials from the provider.
func (a Access) login(ctx context.Context, at registry.Reference, network transport.Config, env source.Env, v *transport.SecretReader) (source.Credential, error) {
	var err error
	if env.Login == nil {
		err = fmt.Errorf("%w: spec.provider: this program knows no provider %s", source.ErrInvalid, a.Provider)
	} else if a.Insecure && !isLoopback(at.Registry) {
		err = fmt.Errorf("%w: spec.insecure: what provider %s issues is not sent without TLS: remove it, or spec.provider", source.ErrInvalid, a.Provider)
	}
	if err != nil {
		return source.Credential{}, &source.StepError{Step: source.StepResolve, Reason: "InvalidProviderConfiguration", Err: err}
	}
	return v.LogIn(ctx, env.Login, network, source.LoginRequest{
		Provider: a.Provider, URL: &url.URL{Scheme: "oci", Host: at.Registry, Path: "/" + at.Repository}, ServiceAccount: a.ServiceAccount,
	})
}

// isLoopback reports whether host, HOST[:PORT], is an address of this machine.
func isLoopback(host string) bool {
	ip, err := netip.ParseAddr((&url.URL{Host: host}).Hostname())
	return err == nil && ip.IsLoopback()
}

// An entry has the credentials for a registry, or for a part of it.
type entry struct {
	host       string // HOST[:PORT]; its labels may be patterns
	path       string // of a repository or of a folder of them, "" for all
	credential source.Credential
	secret     string // the Secret that contains the entry
}

// A keychain has entries of several Secrets, the most specific one first.
type keychain []entry

// dockerLogin is an entry in the format of docker login.
type dockerLogin struct {
	Auth          string `json:"auth"`
	Username      string `json:"username"`
	Password      string `json:"password"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// readKeys returns the entries of a Secret. Errors are *[transport.SecretError].
func readKeys(s transport.Secret) (all keychain, err error) {
	text, key, legacy, err := transport.Registries(s.Name, s.Secret)
	if err != nil {
		return nil, err
	}
	var config struct {
		Auths map[string]dockerLogin `json:"auths"`
	}
	if legacy {
		err = json.Unmarshal(text, &config.Auths)
	} else {
		err = json.Unmarshal(text, &config)
	}
	if err != nil { // err could contain a value
		return nil, &transport.SecretError{Secret: s.Name, Key: key, Problem: "is no JSON as docker login writes it"}
	}
	for _, name := range slices.Sorted(maps.Keys(config.Auths)) {
		l := config.Auths[name]
		if l == (dockerLogin{}) {
			continue // docker stores these credentials elsewhere
		}
		e, defect := l.entry(name)
		if defect != "" {
			return nil, &transport.SecretError{Secret: s.Name, Key: key, Problem: fmt.Sprintf("entry %.100q %s", name, defect)}
		}
		e.secret = s.Name
		all = append(all, e)
	}
	return all, nil
}

// entry converts l, the login for name. defect describes what is wrong, or is "".
func (l dockerLogin) entry(name string) (e entry, defect string) {
	e.host, e.path = scopeOf(name)
	if l.Auth != "" {
		pair, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(l.Auth, "="))
		user, password, found := strings.Cut(strings.TrimRight(string(pair), "\x00"), ":")
		if err != nil || !found {
			return e, "has an auth that is not the base64 of USER:PASSWORD"
		}
		l.Username, l.Password = user, password
	}
	e.credential = source.Credential{Username: l.Username, Password: l.Password, Refresh: l.IdentityToken, Token: l.RegistryToken}
	for _, value := range []string{l.Username, l.Password, l.IdentityToken, l.RegistryToken} {
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return e, "has a control character in it: look for a line break at the end"
		}
	}
	return e, ""
}

// scopeOf parses the name of an entry: [https://]HOST[:PORT][/PATH]. It removes v1 or v2,
// the version of the API, from the beginning of the path.
func scopeOf(name string) (host, folder string) {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "https://"), "http://")
	host, folder, _ = strings.Cut(name, "/")
	if version, rest, _ := strings.Cut(folder, "/"); version == "v1" || version == "v2" {
		folder = rest
	}
	if hubNames[host] {
		host = "docker.io"
	}
	return host, strings.Trim(folder, "/")
}

// find returns the most specific entry for the repository at; k must be sorted.
func (k keychain) find(at registry.Reference) (entry, bool) {
	for _, e := range k {
		inside := e.path == "" || strings.HasPrefix(at.Repository+"/", e.path+"/")
		if inside && matchHost(e.host, at.Registry) {
			return e, true
		}
	}
	return entry{}, false
}

// hasHostPort reports whether an entry is for exactly HOST[:PORT], not by a pattern.
func (k keychain) hasHostPort(host string) bool {
	return slices.ContainsFunc(k, func(e entry) bool { return strings.EqualFold(e.host, host) })
}

// hasHost reports whether an entry is for exactly HOST, on any port.
func (k keychain) hasHost(host string) bool {
	return slices.ContainsFunc(k, func(e entry) bool {
		return strings.EqualFold((&url.URL{Host: e.host}).Hostname(), host)
	})
}

// matchHost reports whether host matches pattern: label by label, with the same port.
func matchHost(pattern, host string) bool {
	if pattern == host {
		return true
	}
	pattern, port, _ := strings.Cut(pattern, ":")
	host, of, _ := strings.Cut(host, ":")
	if port != of || strings.Count(pattern, ".") != strings.Count(host, ".") {
		return false
	}
	// In path.Match a * does not match slashes.
	ok, err := path.Match(strings.ReplaceAll(pattern, ".", "/"), strings.ReplaceAll(host, ".", "/"))
	return ok && err == nil
}

// sort puts more specific entries first: those with the longer path, then the host with
// fewer wildcards, then the longer host.
func (k keychain) sort() {
	wildcards := func(e entry) int {
		return strings.Count(e.host, "*") + strings.Count(e.host, "?") + strings.Count(e.host, "[")
	}
	slices.SortStableFunc(k, func(a, b entry) int {
		return cmp.Or(cmp.Compare(len(b.path), len(a.path)),
			cmp.Compare(wildcards(a), wildcards(b)),
			cmp.Compare(len(b.host), len(a.host)))
	})
}
