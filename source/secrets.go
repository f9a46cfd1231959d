package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// maxSecret is the size in bytes of one key, and of one Secret document, as an
// API server has it.
const maxSecret = 1 << 20

// A missing says that there is no such secret and where it could have been.
type missing struct {
	what  string   // for example secret apps/git-auth
	tried []string // why each place has none
}

func (m *missing) Error() string { return m.what + " does not exist: " + strings.Join(m.tried, "; ") }

// Is makes it an [fs.ErrNotExist].
func (m *missing) Is(target error) bool { return target == fs.ErrNotExist }

// A defective secret is there and cannot be used. It is no [fs.ErrNotExist].
type defective struct {
	what      string // for example secret apps/git-auth
	why       error
	elsewhere bool // another place may have one that can be used
}

func (d *defective) Error() string { return d.what + ": " + d.why.Error() }
func (d *defective) Unwrap() error { return d.why }

func missingSecret(namespace, name, tried string) error {
	return &missing{"secret " + namespace + "/" + name, []string{tried}}
}

func missingAccount(namespace, name, tried string) error {
	return &missing{"service account " + namespace + "/" + name, []string{tried}}
}

// Secret implements [Secrets] with the Secret documents of the set.
func (s *Set) Secret(_ context.Context, namespace, name string) (Secret, error) {
	if secret, found := s.Secrets[namespace+"/"+name]; found {
		return secret, nil
	}
	if d := s.defective["Secret/"+namespace+"/"+name]; d != nil {
		return Secret{}, d
	}
	return Secret{}, missingSecret(namespace, name, "no such document")
}

// PullSecrets implements [Secrets] with the ServiceAccount documents of the set.
func (s *Set) PullSecrets(ctx context.Context, namespace, serviceAccount string) ([]Secret, error) {
	names, err := s.pullNames(namespace, serviceAccount)
	if err != nil {
		return nil, err
	}
	return secretsOf(ctx, s, namespace, names)
}

func (s *Set) pullNames(namespace, serviceAccount string) ([]string, error) {
	if d := s.defective["ServiceAccount/"+namespace+"/"+serviceAccount]; d != nil {
		return nil, d
	}
	names, found := s.accounts[namespace+"/"+serviceAccount]
	if !found {
		return nil, missingAccount(namespace, serviceAccount, "no such document")
	}
	return names, nil
}

func secretsOf(ctx context.Context, from Secrets, namespace string, names []string) ([]Secret, error) {
	var out []Secret
	for _, name := range names {
		secret, err := from.Secret(ctx, namespace, name)
		if err != nil {
			return nil, err
		}
		out = append(out, secret)
	}
	return out, nil
}

// Chain returns the secrets of several places: the first that has a secret
// gives all of it. Errors other than [fs.ErrNotExist] end the search. After an
// encrypted document, an empty directory or empty variables it goes on, and they
// are the error when no other place has the secret. The secrets that a
// ServiceAccount document names are looked up in all places.
func Chain(places ...Secrets) Secrets { return chain(places) }

type chain []Secrets

// Secret implements [Secrets].
func (c chain) Secret(ctx context.Context, namespace, name string) (Secret, error) {
	return firstOf(c, "secret "+namespace+"/"+name, func(s Secrets) (Secret, error) {
		return s.Secret(ctx, namespace, name)
	})
}

// PullSecrets implements [Secrets].
func (c chain) PullSecrets(ctx context.Context, namespace, serviceAccount string) ([]Secret, error) {
	return firstOf(c, "service account "+namespace+"/"+serviceAccount, func(s Secrets) ([]Secret, error) {
		set, ok := s.(interface {
			pullNames(namespace, serviceAccount string) ([]string, error)
		})
		if !ok {
			return s.PullSecrets(ctx, namespace, serviceAccount)
		}
		names, err := set.pullNames(namespace, serviceAccount)
		if err != nil {
			return nil, err
		}
		secrets, err := secretsOf(ctx, c, namespace, names)
		if err != nil {
			// Not a missing account: the search must end here.
			return nil, &pullError{namespace + "/" + serviceAccount, err}
		}
		return secrets, nil
	})
}

// A pullError is a service account whose secrets cannot be read.
type pullError struct {
	account string
	err     error
}

func (e *pullError) Error() string {
	return fmt.Sprintf("service account %s: %v", e.account, e.err)
}

func (e *pullError) Unwrap() error { return e.err }

// firstOf returns the first answer that is not a missing thing.
func firstOf[T any](places []Secrets, what string, ask func(Secrets) (T, error)) (T, error) {
	var none T
	all := &missing{what: what}
	var unusable *defective
	for _, s := range places {
		out, err := ask(s)
		var pull *pullError
		var d *defective
		switch m := (*missing)(nil); {
		case err == nil:
			return out, nil
		case !errors.As(err, &pull) && errors.As(err, &d) && d.elsewhere:
			unusable = cmp.Or(unusable, d)
		case errors.As(err, &pull) || !errors.Is(err, fs.ErrNotExist):
			return none, err
		case errors.As(err, &m):
			all.tried = append(all.tried, m.tried...)
		default:
			all.tried = append(all.tried, err.Error())
		}
	}
	if unusable != nil {
		return none, unusable
	}
	if len(all.tried) == 0 {
		all.tried = []string{"no secrets were given"}
	}
	return none, all
}

// typeOf returns the type of a secret that says none.
func typeOf(data map[string][]byte) string {
	if _, found := data[".dockerconfigjson"]; found {
		return "kubernetes.io/dockerconfigjson"
	}
	return opaque
}
