package git

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/headgate-io/headgate/git/internal/wire"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// An access is how a submodule is reached.
type access struct {
	url   *url.URL // with the user information of spec.url, where that is due
	ref   *source.LocalReference
	field string // that names ref, "" where no credentials are known for the origin
}

// accessTo chooses the credentials for a submodule at u: those that
// spec.submoduleCredentials gives for its origin, those of spec.url on the same
// origin, and else none.
func (o *Origin) accessTo(u *url.URL) (access, error) {
	spec := &o.repo.Spec
	for i, c := range spec.SubmoduleCredentials {
		of, err := url.Parse(c.URL)
		if err != nil {
			return access{}, invalid(fmt.Errorf("spec.submoduleCredentials[%d].url is no URL", i))
		}
		if transport.SameOrigin(of, u) {
			return access{u, &c.SecretRef, fmt.Sprintf("spec.submoduleCredentials[%d].secretRef", i)}, nil
		}
	}
	top, err := parseURL(spec.URL)
	switch {
	case err != nil:
		return access{}, err
	case !transport.SameOrigin(top, u):
		return access{u, nil, ""}, nil
	case u.User == nil:
		with := *u
		with.User = top.User
		u = &with
	}
	return access{u, spec.SecretRef, ownSecret}, nil
}

// reachModule returns the upstream of the submodule m.
func (o *Origin) reachModule(ctx context.Context, m *module) (upstream, error) {
	u := m.url
	if path, ok := o.standinOf(u); ok {
		return openLocal(path, o.env.Limits)
	}
	a, err := o.accessTo(u)
	if err != nil {
		return nil, err
	}
	if u.Scheme == "ssh" && a.field == "" {
		return nil, fmt.Errorf("%w: ssh needs a key, and the credentials of spec.url are not for this host: %s", wire.ErrAuth, remedy(u))
	}
	return o.reach(ctx, a.url, a.ref, a.field, m.fence)
}

// fenceOf returns the fence of a submodule at u. A repository whose fence is from
// names it, unless the spec does: it has credentials for the host.
func (o *Origin) fenceOf(u *url.URL, from *transport.Fence) *transport.Fence {
	if a, err := o.accessTo(u); err == nil && a.field != "" {
		from = nil
	}
	return transport.NewFence(u, from)
}

// standinOf returns the local path that stands in for u, whether its name ends
// in .git or not.
func (o *Origin) standinOf(u *url.URL) (path string, ok bool) {
	name := u.String()
	for _, spelling := range []string{name, strings.TrimSuffix(name, ".git"), name + ".git"} {
		if path, ok = o.env.Local[spelling]; ok {
			return path, true
		}
	}
	return "", false
}

// remedy says how to give credentials for the origin of u.
func remedy(u *url.URL) string {
	of := url.URL{Scheme: u.Scheme, Host: u.Host}
	keys := "username and password"
	if u.Scheme == "ssh" {
		keys = "identity and known_hosts"
	}
	return fmt.Sprintf("add an entry to spec.submoduleCredentials, with url %s and a secretRef to a Secret that holds %s", &of, keys)
}

// blame makes err one about the submodule m, if it is one: a failure of the
// fetch, with the reason that err has.
func (o *Origin) blame(m *module, err error) error {
	if m.depth == 0 {
		return err
	}
	u := m.url
	zone, narrower := errors.AsType[*transport.ZoneError](err)
	if a, wrong := o.accessTo(u); wrong == nil && a.field == "" && u.Scheme != "ssh" {
		switch {
		case errors.Is(err, wire.ErrAuth):
			err = fmt.Errorf("%w: no credentials were sent, for those of spec.url are not for this host: %s", err, remedy(u))
		case errors.Is(err, wire.ErrNotFound):
			err = fmt.Errorf("%w: if it is private, %s", err, remedy(u))
		case narrower && !zone.Metadata && m.fence.Is(zone.Host):
			err = fmt.Errorf("%w, or %s", err, remedy(u))
		}
	}
	var step *source.StepError
	errors.As(stepError(source.StepFetch, err), &step)
	return &source.StepError{Step: source.StepFetch, Reason: step.Reason, Err: fmt.Errorf("submodule %q at %s: %w", m.path, redact.URL(u), err)}
}
