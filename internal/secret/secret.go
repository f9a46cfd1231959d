// Package secret reads values of Secrets in the forms that clients of several protocols
// share: text for headers, user names and passwords, bearer tokens, CAs and client
// certificates.
//
// A key that is present with an empty value counts as absent. A Secret that
// cannot be used gives an [*Error], which names the Secret, the key and what is
// wrong, and never a value.
package secret

import (
	"context"
	"fmt"
	"strings"
)

// An Error says why a Secret cannot be used. It holds no value of the Secret.
type Error struct {
	Secret  string // as the caller named it, for example default/credentials
	Key     string
	Problem string // what is wrong with the key, and what to do
}

func (e *Error) Error() string {
	return fmt.Sprintf("secret %s: key %s %s", e.Secret, e.Key, e.Problem)
}

// A Reader reads one Secret by key.
type Reader struct {
	Name string // for errors
	Data map[string][]byte
}

// Get returns a reader of the Secret that the function secrets returns. If secrets is nil,
// there are no Secrets, which is an error.
func Get(ctx context.Context, secrets func(ctx context.Context, namespace, name string) (map[string][]byte, error), namespace, name string) (Reader, error) {
	r := Reader{Name: namespace + "/" + name}
	if secrets == nil {
		return r, fmt.Errorf("secret %s: there are no Secrets here", r.Name)
	}
	data, err := secrets(ctx, namespace, name)
	if err != nil {
		return r, ReadError("secret "+r.Name, err)
	}
	r.Data = data
	return r, nil
}

// Value returns the first of keys that has a value, and its name.
func (r Reader) Value(keys []string) (value []byte, key string) {
	for _, k := range keys {
		if v := r.Data[k]; len(v) > 0 {
			return v, k
		}
	}
	return nil, keys[0]
}

// Problem returns an [*Error] about a key.
func (r Reader) Problem(key, format string, args ...any) error {
	return &Error{r.Name, key, fmt.Sprintf(format, args...)}
}

// Text returns a value that goes into a protocol header, where a control
// character would end or forge a line (RFC 7617 section 2).
func (r Reader) Text(keys []string) (string, error) {
	v, key := r.Value(keys)
	switch i := strings.IndexFunc(string(v), isControl); {
	case i < 0:
		return string(v), nil
	case i == len(strings.TrimRight(string(v), "\r\n")):
		return "", r.Problem(key, "ends in a line break: remove it")
	default:
		return "", r.Problem(key, "has a control character at byte %d", i)
	}
}

// ReadError returns err with subject in front, unless err begins with subject. subject is
// what cannot be read, such as secret default/login.
func ReadError(subject string, err error) error {
	if rest, found := strings.CutPrefix(err.Error(), subject); found && (strings.HasPrefix(rest, " ") || strings.HasPrefix(rest, ":")) {
		return err
	}
	return fmt.Errorf("%s: %w", subject, err)
}

func isControl(c rune) bool { return c < ' ' || c == 0x7f }
