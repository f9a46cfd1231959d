package sourcetest

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/headgate-io/headgate/source"
)

// Secrets are Secrets by NAMESPACE/NAME. No service account has any.
type Secrets map[string]source.Secret

// Secret implements [source.Secrets]. The error for one that is not there is [fs.ErrNotExist].
func (m Secrets) Secret(_ context.Context, namespace, name string) (source.Secret, error) {
	if s, ok := m[namespace+"/"+name]; ok {
		return s, nil
	}
	return source.Secret{}, fmt.Errorf("no such secret: %w", fs.ErrNotExist)
}

// PullSecrets implements [source.Secrets].
func (Secrets) PullSecrets(context.Context, string, string) ([]source.Secret, error) { return nil, nil }

// Secret returns a Secret that holds KEY, VALUE, …
func Secret(keyValue ...string) source.Secret {
	s := source.Secret{Data: map[string][]byte{}}
	for i := 0; i < len(keyValue); i += 2 {
		s.Data[keyValue[i]] = []byte(keyValue[i+1])
	}
	return s
}
