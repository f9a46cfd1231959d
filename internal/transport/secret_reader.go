package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"github.com/headgate-io/headgate/internal/secret"
	"github.com/headgate-io/headgate/source"
)

// A Secret is a Secret and its name in messages, NAMESPACE/NAME. The name is "" if the spec
// names no Secret.
type Secret struct {
	Name string
	source.Secret
}

// A SecretReader reads the Secrets that the spec of one object names, and collects their
// values so that they can be redacted. It is safe for concurrent use.
type SecretReader struct {
	Namespace string             // of the object
	From      source.Secrets     // nil for none
	Accounts  source.AccountFunc // identities of service accounts; nil for none

	mu     sync.Mutex
	values []string
}

var errNoSecrets = fmt.Errorf("no Secrets were given: %w", fs.ErrNotExist)

// nonSecretKeys are the keys of Secrets whose values are not confidential.
var nonSecretKeys = map[string]bool{"username": true, "known_hosts": true, "identity.pub": true, "ca.crt": true, "caFile": true, "tls.crt": true, "certFile": true, "address": true,
	"githubAppID": true, "githubAppInstallationID": true, "githubAppInstallationOwner": true, "githubAppBaseURL": true,
	keyTenant: true, keyClient: true, keyClientChain: true, keyAuthority: true, "roleArn": true}

// Read returns the Secret that ref names, or the zero Secret if ref is nil. field is the
// field of the spec, for errors. Errors are *[source.StepError] with the reason
// AuthenticationFailed.
func (v *SecretReader) Read(ctx context.Context, ref *source.LocalReference, field string) (Secret, error) {
	if ref == nil {
		return Secret{}, nil
	}
	name := v.Namespace + "/" + ref.Name
	s, err := source.Secret{}, errNoSecrets
	if v.From != nil {
		s, err = v.From.Secret(ctx, v.Namespace, ref.Name)
	}
	if err != nil {
		return Secret{}, &source.StepError{Step: source.StepResolve, Reason: "AuthenticationFailed",
			Err: fmt.Errorf("%s: %w", field, secret.ReadError("secret "+name, err))}
	}
	v.concealData(s)
	return Secret{name, s}, nil
}

// PullSecrets returns the Secrets of the service account that field names. Errors are those
// of Read.
func (v *SecretReader) PullSecrets(ctx context.Context, account, field string) ([]Secret, error) {
	list, err := []source.Secret(nil), errNoSecrets
	if v.From != nil {
		list, err = v.From.PullSecrets(ctx, v.Namespace, account)
	}
	if err != nil {
		return nil, &source.StepError{Step: source.StepResolve, Reason: "AuthenticationFailed",
			Err: fmt.Errorf("%s: %w", field, secret.ReadError("service account "+v.Namespace+"/"+account, err))}
	}
	out := make([]Secret, len(list))
	for i, s := range list {
		v.concealData(s)
		out[i] = Secret{fmt.Sprintf("%d of service account %s/%s", i+1, v.Namespace, account), s}
	}
	return out, nil
}

// concealData collects the confidential values of a Secret.
func (v *SecretReader) concealData(s source.Secret) {
	for key, value := range s.Data {
		if !nonSecretKeys[key] {
			v.Conceal(string(value))
		}
	}
}

// Conceal collects values to redact. It ignores values of up to three bytes.
func (v *SecretReader) Conceal(values ...string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, s := range values {
		if len(s) > 3 && !slices.Contains(v.values, s) {
			v.values = append(v.values, s)
		}
	}
}

// Values returns the values to redact.
func (v *SecretReader) Values() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.values)
}

// LogIn gets credentials for request.URL from request.Provider, whose servers are reached
// as c says. It fills in the rest of the request, and collects the issued credentials for
// redaction. Errors are *[source.StepError] with the reason InvalidProviderConfiguration or
// AuthenticationFailed, or the error of the service account.
func (v *SecretReader) LogIn(ctx context.Context, login source.LoginFunc, c Config, request source.LoginRequest) (source.Credential, error) {
	client := Client(Config{TLS: c.TLS, Proxy: c.Proxy, Networks: c.Networks})
	defer client.CloseIdleConnections()
	request.Namespace, request.Client, request.OwnTrust = v.Namespace, client, c.TLS != nil
	if v.Accounts != nil {
		request.Account = func(ctx context.Context) (*source.Account, error) {
			return v.Accounts(ctx, v.Namespace, request.ServiceAccount)
		}
	}
	issued, err := login(ctx, request)
	if err == nil {
		v.Conceal(issued.Username, issued.Password, issued.Token, issued.Refresh)
		return issued, nil
	}
	reason := "AuthenticationFailed"
	if stepErr, ok := errors.AsType[*source.StepError](err); ok {
		reason = stepErr.Reason
	} else if errors.Is(err, source.ErrProvider) {
		reason = "InvalidProviderConfiguration"
	}
	return source.Credential{}, &source.StepError{Step: source.StepResolve, Reason: reason,
		Err: fmt.Errorf("log in with provider %s: %w", request.Provider, err)}
}

// HashInto adds texts to h so that no other sequence of texts gives the same hash input.
func HashInto(h hash.Hash, texts ...string) {
	for _, t := range texts {
		binary.Write(h, binary.BigEndian, int64(len(t)))
		h.Write([]byte(t))
	}
}

// HashInto adds the type and the data of s to h, but not its name.
func (s Secret) HashInto(h hash.Hash) {
	HashInto(h, s.Type)
	binary.Write(h, binary.BigEndian, int64(len(s.Data)))
	for _, key := range slices.Sorted(maps.Keys(s.Data)) {
		HashInto(h, key, string(s.Data[key]))
	}
}

// TrustFingerprint holds the fingerprint of the keys and identities that a spec trusted when a
// revision was resolved. It is safe for concurrent use.
type TrustFingerprint struct {
	mu          sync.Mutex
	fingerprint string
}

// Set stores print.
func (t *TrustFingerprint) Set(print string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fingerprint = print
}

// Check returns an error unless print is the stored fingerprint, or none is stored.
// Otherwise a run would record a fingerprint of keys that it did not use.
func (t *TrustFingerprint) Check(print string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fingerprint == "" || t.fingerprint == print {
		return nil
	}
	return VerificationError(errors.New("spec.verify: the keys changed since the revision was looked up, try again"))
}

// VerificationError returns the error of a verification that could not be done.
func VerificationError(err error) error {
	return &source.StepError{Step: source.StepVerify, Reason: "VerificationError", Err: err}
}
