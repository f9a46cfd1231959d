package source

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/headgate-io/headgate/internal/document"
)

// maxSecret is the maximum size in bytes of one key, and of one Secret document, as in an API
// server.
const maxSecret = 1 << 20

// A missingSecretError is the error for a secret that a place does not have, or has in an unusable form:
// another place may have it.
type missingSecretError struct {
	what     string   // for example secret apps/git-auth
	tried    []string // why each place does not have it
	unusable error    // the defect of the secret in a place that has it
}

func (m *missingSecretError) Error() string {
	if m.unusable != nil {
		return m.what + ": " + m.unusable.Error()
	}
	return m.what + " does not exist: " + strings.Join(m.tried, "; ")
}

// Is makes a missingSecretError match [fs.ErrNotExist] if no place has the secret.
func (m *missingSecretError) Is(target error) bool {
	return target == fs.ErrNotExist && m.unusable == nil
}

func secretNamed(namespace, name string) string  { return "secret " + namespace + "/" + name }
func accountNamed(namespace, name string) string { return "service account " + namespace + "/" + name }

// Secret implements [Secrets] with the Secret documents of the set.
func (s *Set) Secret(_ context.Context, namespace, name string) (Secret, error) {
	if secret, found := s.Secrets[namespace+"/"+name]; found {
		return secret, nil
	}
	return Secret{}, s.lookupError("Secret/"+namespace+"/"+name, secretNamed(namespace, name))
}

// lookupError returns the error of a look-up without a usable result.
func (s *Set) lookupError(key, what string) error {
	switch err := s.unusable[key].(type) {
	case nil:
		return &missingSecretError{what: what, tried: []string{"no such document"}}
	case *missingSecretError:
		return &missingSecretError{what: what, unusable: err.unusable}
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
}

// PullSecrets implements [Secrets] with the ServiceAccount documents of the set.
func (s *Set) PullSecrets(ctx context.Context, namespace, serviceAccount string) ([]Secret, error) {
	return chain{s}.PullSecrets(ctx, namespace, serviceAccount)
}

// Chain combines several places: the first that has a secret provides all of it. Errors other than
// [fs.ErrNotExist] end the search. An encrypted document, an empty directory or empty variables do
// not end it; they become the error if no other place has the secret. The secrets that a
// ServiceAccount document names are looked up in all places.
func Chain(places ...Secrets) Secrets { return chain(places) }

type chain []Secrets

// Secret implements [Secrets].
func (c chain) Secret(ctx context.Context, namespace, name string) (secret Secret, err error) {
	err = c.tryEach(secretNamed(namespace, name), func(s Secrets) (err error) {
		secret, err = s.Secret(ctx, namespace, name)
		return err
	})
	return secret, err
}

// PullSecrets implements [Secrets].
func (c chain) PullSecrets(ctx context.Context, namespace, serviceAccount string) (secrets []Secret, err error) {
	what := accountNamed(namespace, serviceAccount)
	var names []string
	err = c.tryEach(what, func(s Secrets) (err error) {
		set, ok := s.(*Set)
		if !ok {
			secrets, err = s.PullSecrets(ctx, namespace, serviceAccount)
			return err
		}
		var found bool
		if names, found = set.accounts[namespace+"/"+serviceAccount]; !found {
			err = set.lookupError("ServiceAccount/"+namespace+"/"+serviceAccount, what)
		}
		return err
	})
	for _, name := range names {
		secret, err := c.Secret(ctx, namespace, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		secrets = append(secrets, secret)
	}
	return secrets, err
}

// tryEach calls ask for one place after the other until one succeeds.
func (c chain) tryEach(what string, ask func(Secrets) error) error {
	all := &missingSecretError{what: what}
	for _, s := range c {
		err := ask(s)
		m, lacks := err.(*missingSecretError)
		switch {
		case err == nil:
			return nil
		case lacks:
			all.tried = append(all.tried, m.tried...)
			all.unusable = cmp.Or(all.unusable, m.unusable)
		case errors.Is(err, fs.ErrNotExist):
			all.tried = append(all.tried, err.Error())
		default:
			return err
		}
	}
	if len(all.tried) == 0 {
		all.tried = []string{"no secrets were given"}
	}
	return all
}

// typeOf returns the type of a secret without an explicit type.
func typeOf(data map[string][]byte) string {
	if _, found := data[".dockerconfigjson"]; found {
		return "kubernetes.io/dockerconfigjson"
	}
	return opaque
}

// DirSecrets returns the secrets in a directory of files. The value of a key is the content of
// NAMESPACE/NAME/KEY or else, in any namespace, NAME/KEY. It supports directories mounted by
// Kubernetes: links may lead anywhere within dir, and names that begin with ".." are skipped. One
// newline after a value of a single line is removed. A value may have at most 1 MiB.
//
// A file that exists but cannot be read, or a file NAME instead of a directory, is an error that
// does not match [fs.ErrNotExist]. The directory is opened for each secret. It has no service
// accounts.
func DirSecrets(dir string) Secrets { return dirSecrets(dir) }

type dirSecrets string

// Secret implements [Secrets].
func (d dirSecrets) Secret(_ context.Context, namespace, name string) (Secret, error) {
	none := &missingSecretError{what: secretNamed(namespace, name), tried: []string{"no files " + path.Join(string(d), name, "KEY")}}
	if document.CheckName(namespace) != nil || document.CheckName(name) != nil {
		return Secret{}, none
	}
	root, err := os.OpenRoot(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		none.tried = []string{"no directory " + string(d)}
		return Secret{}, none
	}
	if err != nil {
		return Secret{}, fmt.Errorf("%s: directory of secrets: %w", none.what, err)
	}
	defer root.Close()
	for _, dir := range []string{namespace + "/" + name, name} {
		data, err := readKeys(root, dir)
		switch {
		case err == errNoKeys:
			none.unusable = cmp.Or(none.unusable, fmt.Errorf("directory %s %w", path.Join(string(d), dir), err))
		case err != nil:
			return Secret{}, fmt.Errorf("%s: in directory %s: %w", none.what, string(d), err)
		case len(data) > 0:
			return Secret{Type: typeOf(data), Data: data}, nil
		}
	}
	return Secret{}, none
}

// PullSecrets implements [Secrets].
func (d dirSecrets) PullSecrets(_ context.Context, namespace, serviceAccount string) ([]Secret, error) {
	return nil, &missingSecretError{what: accountNamed(namespace, serviceAccount), tried: []string{"a directory of secrets has none"}}
}

var errNoKeys = errors.New("is empty: write a file for each key")

// readKeys reads the files in dir; it returns nil if dir does not exist.
func readKeys(root *os.Root, dir string) (map[string][]byte, error) {
	info, err := statIfExists(root, dir)
	if info == nil || err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is a file: make it a directory with a file for each key", dir)
	}
	entries, err := fs.ReadDir(root.FS(), dir)
	if err != nil {
		return nil, err
	}
	data, none := make(map[string][]byte), true
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		none = false
		name := dir + "/" + e.Name()
		info, err := statIfExists(root, name)
		if err != nil {
			return nil, err
		}
		if info == nil || !info.Mode().IsRegular() {
			continue
		}
		value, err := read(root, name, maxSecret)
		if err != nil {
			return nil, err
		}
		data[e.Name()] = trimLine(value)
	}
	if none {
		return nil, errNoKeys
	}
	return data, nil
}

// statIfExists returns information about name, or nil if it does not exist. A dangling link is an error.
func statIfExists(root *os.Root, name string) (fs.FileInfo, error) {
	info, err := root.Stat(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return info, err
	}
	if _, err := root.Lstat(name); err == nil {
		return nil, fmt.Errorf("%s is a link to what does not exist", name)
	}
	return nil, nil
}

// trimLine removes the newline after a single line, which editors and echo add.
func trimLine(value []byte) []byte {
	if i := bytes.IndexByte(value, '\n'); i >= 0 && i == len(value)-1 {
		return bytes.TrimSuffix(value[:i], []byte("\r"))
	}
	return value
}

// EnvPrefix is the prefix of the variables that [EnvSecrets] reads.
const EnvPrefix = "HEADGATE_SECRET_"

// envKeys are the keys that EnvSecrets looks up, because the environment cannot be listed: the keys
// in the specification and in reference A9 to A14.
var envKeys = []string{
	"username", "password", "bearerToken", // http, tokens
	"identity", "identity.pub", "known_hosts", // ssh
	"ca.crt", "tls.crt", "tls.key", "caFile", "certFile", "keyFile", // TLS
	"address",                                                                                                         // proxy
	"githubAppID", "githubAppInstallationID", "githubAppInstallationOwner", "githubAppPrivateKey", "githubAppBaseURL", // GitHub
	"accesskey", "secretkey", "serviceaccount", // buckets
	"token", "roleArn", // token services of buckets
	"tenantId", "clientId", "clientSecret", "clientCertificate", "clientCertificatePassword",
	"clientCertificateSendChain", "accountKey", "sasKey", "authorityHost", // Azure
	".dockerconfigjson",                                   // registries
	"cosign.pub", "trusted_root.json", "trustpolicy.json", // signatures
}

// EnvSecrets returns the secrets in environment variables, which it reads with lookup, for example
// [os.LookupEnv]. The value of a key is in
//
//	HEADGATE_SECRET_<NAME>_<KEY>
//
// in any namespace. NAME and KEY are in upper case; each run of characters other than letters and
// digits is replaced by one "_", with none at the ends. For example, password of git-auth is
// HEADGATE_SECRET_GIT_AUTH_PASSWORD, and .dockerconfigjson of regcred is
// HEADGATE_SECRET_REGCRED_DOCKERCONFIGJSON.
//
// The environment cannot be searched, so EnvSecrets tries the keys that headgate knows.
// HEADGATE_SECRET_<NAME>_KEYS names further keys, separated by commas: "alice.asc,bob.sshpub". An
// empty variable counts as missing. If all variables of a secret are empty, or if only the variable
// with KEYS is set, that is an error that does not match [fs.ErrNotExist]. There are no service
// accounts.
func EnvSecrets(lookup func(string) (string, bool)) Secrets { return envSecrets(lookup) }

type envSecrets func(string) (string, bool)

// Secret implements [Secrets].
func (e envSecrets) Secret(_ context.Context, namespace, name string) (Secret, error) {
	prefix := EnvPrefix + envName(name) + "_"
	keys := envKeys
	if list, found := e(prefix + "KEYS"); found {
		keys = append(strings.Split(list, ","), keys...)
	}
	data := make(map[string][]byte)
	var unusable error
	for i, key := range keys {
		key = strings.TrimSpace(key)
		if key == "" {
			continue
		}
		value, found := e(prefix + envName(key))
		switch {
		case value != "":
			data[key] = []byte(value)
		case unusable != nil:
		case found:
			unusable = fmt.Errorf("variable %s is empty: set it", prefix+envName(key))
		case i < len(keys)-len(envKeys):
			unusable = fmt.Errorf("variable %s names the key %s, but there is no variable %s", prefix+"KEYS", quote(key), prefix+envName(key))
		}
	}
	if len(data) == 0 {
		return Secret{}, &missingSecretError{secretNamed(namespace, name), []string{"no variable " + prefix + "<KEY>"}, unusable}
	}
	return Secret{Type: typeOf(data), Data: data}, nil
}

// PullSecrets implements [Secrets].
func (e envSecrets) PullSecrets(_ context.Context, namespace, serviceAccount string) ([]Secret, error) {
	return nil, &missingSecretError{what: accountNamed(namespace, serviceAccount), tried: []string{"the environment has none"}}
}

// envName returns a name in the form used in names of variables.
func envName(name string) string {
	parts := strings.FieldsFunc(strings.ToUpper(name), func(r rune) bool {
		return (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	})
	return strings.Join(parts, "_")
}
