package source_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

const secretDocuments = `apiVersion: v1
kind: Secret
metadata: {name: auth, namespace: apps}
type: kubernetes.io/basic-auth
data: {username: YWxpY2U=, password: b2xk}
stringData: {password: new}
---
apiVersion: v1
kind: Secret
metadata: {name: sops, namespace: apps}
stringData: {a: "ENC[x]"}
sops: {}
---
apiVersion: bitnami.com/v1alpha1
kind: SealedSecret
metadata: {name: sealed}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: puller, namespace: apps}
imagePullSecrets: [{name: auth}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: bare, namespace: apps}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: mixed, namespace: apps}
imagePullSecrets: [{name: auth}, {name: elsewhere}]
`

func secretSet(t *testing.T) *source.Set {
	t.Helper()
	var s source.Set
	must(t, s.Decode("secrets.yaml", strings.NewReader(secretDocuments)))
	return &s
}

func TestDocumentSecrets(t *testing.T) {
	s := secretSet(t)
	ctx := context.Background()
	got, err := s.Secret(ctx, "apps", "auth")
	want := source.Secret{Type: "kubernetes.io/basic-auth", Data: map[string][]byte{"username": []byte("alice"), "password": []byte("new")}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := s.Secret(ctx, "default", "auth"); !errors.Is(err, fs.ErrNotExist) || err.Error() != "secret default/auth does not exist: no such document" {
		t.Error(err)
	}
	for name, want := range map[string]string{
		"apps/sops":      "secret apps/sops: the document in secrets.yaml is encrypted with SOPS: decrypt it first",
		"default/sealed": "secret default/sealed: the document in secrets.yaml is a SealedSecret",
	} {
		namespace, secretName, _ := strings.Cut(name, "/")
		if _, err := s.Secret(ctx, namespace, secretName); errors.Is(err, fs.ErrNotExist) || err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := s.PullSecrets(ctx, "apps", "puller"); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := s.PullSecrets(ctx, "apps", "bare"); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
	for _, name := range []string{"mixed", "none"} {
		_, err = s.PullSecrets(ctx, "apps", name)
		testenv.ErrorIs(t, err, fs.ErrNotExist, name)
	}
}

// TestDefectiveDocuments looks up secrets in unusable documents, and one of two usable documents.
func TestDefectiveDocuments(t *testing.T) {
	var s, other source.Set
	err := other.Decode("a.yaml", strings.NewReader(`apiVersion: v1
kind: Secret
metadata: {name: text}
data: {password: "s3cret!"}
---
apiVersion: v1
kind: Secret
metadata: {name: list, namespace: apps}
stringData: [s3cret]
---
apiVersion: v1
kind: Secret
metadata: {name: twice}
data: {password: "s3cret!"}
---
apiVersion: v1
kind: Secret
metadata: {name: twice}
stringData: {password: good}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: puller}
imagePullSecrets: regcred
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: blank}
imagePullSecrets: [{name: regcred}, {}]
`))
	if err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Fatal(err)
	}
	must(t, s.Add(&other))
	ctx := context.Background()
	all := source.Chain(&s, source.EnvSecrets(lookup(map[string]string{"HEADGATE_SECRET_TEXT_PASSWORD": "other"})))
	for name, want := range map[string]string{
		"default/text":   "secret default/text: a.yaml:4: data[password]: is not base64: use stringData for plain text",
		"apps/list":      "secret apps/list: a.yaml:9: stringData: must be a mapping, not a list",
		"default/puller": "service account default/puller: a.yaml:24: imagePullSecrets: must be a list, not a string",
		"default/blank":  "service account default/blank: a.yaml:29: imagePullSecrets[1].name: is required",
	} {
		namespace, secretName, _ := strings.Cut(name, "/")
		_, err := all.Secret(ctx, namespace, secretName)
		if strings.HasPrefix(want, "service") {
			_, err = all.PullSecrets(ctx, namespace, secretName)
		}
		if errors.Is(err, fs.ErrNotExist) || err == nil || err.Error() != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := all.Secret(ctx, "default", "twice"); err != nil || string(got.Data["password"]) != "good" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestLargeSecretDocument(t *testing.T) {
	var s source.Set
	err := s.Decode("-", strings.NewReader("apiVersion: v1\nkind: Secret\nmetadata: {name: x}\nstringData: {a: "+strings.Repeat("x", 1<<20+1)+"}\n"))
	if err == nil || !strings.Contains(err.Error(), "data: must hold at most 1 MiB") || len(err.Error()) > 200 {
		t.Errorf("%.300v", err)
	}
}

// write writes files below dir and creates directories.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		name = filepath.Join(dir, filepath.FromSlash(name))
		must(t, os.MkdirAll(filepath.Dir(name), 0o700))
		must(t, os.WriteFile(name, []byte(text), 0o600))
	}
}

func TestDirSecrets(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"auth/username":             "alice\r\n",
		"auth/password":             " secret \n",
		"auth/identity":             "line\nline\n",
		"auth/empty":                "",
		"auth/sub/x":                "not a key",
		"apps/auth/password":        "of apps",
		"regcred/.dockerconfigjson": "{}",
		"file":                      "not a secret",
		"large/key":                 strings.Repeat("x", 1<<20+1),
		"limit/key":                 strings.Repeat("x", 1<<20),
	})
	secrets := source.DirSecrets(dir)
	ctx := context.Background()
	want := map[string]string{"username": "alice", "password": " secret ", "identity": "line\nline\n", "empty": ""}
	for _, namespace := range []string{"default", "other"} {
		got, err := secrets.Secret(ctx, namespace, "auth")
		if err != nil || got.Type != "Opaque" || !reflect.DeepEqual(texts(got), want) {
			t.Errorf("%s: %q, %v", namespace, got, err)
		}
	}
	if got, err := secrets.Secret(ctx, "apps", "auth"); err != nil || !reflect.DeepEqual(texts(got), map[string]string{"password": "of apps"}) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := secrets.Secret(ctx, "apps", "regcred"); err != nil || got.Type != "kubernetes.io/dockerconfigjson" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := secrets.Secret(ctx, "apps", "limit"); err != nil || len(got.Data["key"]) != 1<<20 {
		t.Errorf("%d bytes, %v", len(got.Data["key"]), err)
	}
	_, err := secrets.Secret(ctx, "apps", "large")
	testenv.ErrorSays(t, err, "large/key is larger than 1 MiB")
	must(t, os.Mkdir(filepath.Join(dir, "void"), 0o700))
	for name, want := range map[string]string{
		"file": "secret default/file: in directory " + dir + ": file is a file: make it a directory with a file for each key",
		"void": "secret default/void: directory " + filepath.ToSlash(dir) + "/void is empty: write a file for each key",
	} {
		if _, err := secrets.Secret(ctx, "default", name); err == nil || errors.Is(err, fs.ErrNotExist) || err.Error() != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	env := source.EnvSecrets(lookup(map[string]string{"HEADGATE_SECRET_VOID_PASSWORD": "x"}))
	if got, err := source.Chain(secrets, env).Secret(ctx, "default", "void"); err != nil || string(got.Data["password"]) != "x" {
		t.Errorf("%q, %v", got, err)
	}
	for _, name := range []string{"none", "apps", "../auth", "auth/sub", "", "."} {
		_, err = secrets.Secret(ctx, "default", name)
		testenv.ErrorIs(t, err, fs.ErrNotExist, name)
	}
	_, err = secrets.PullSecrets(ctx, "apps", "sa")
	testenv.ErrorIs(t, err, fs.ErrNotExist)
	_, err = source.DirSecrets(filepath.Join(dir, "none")).Secret(ctx, "a", "b")
	testenv.ErrorIs(t, err, fs.ErrNotExist)
}

func texts(s source.Secret) map[string]string {
	out := make(map[string]string)
	for key, value := range s.Data {
		out[key] = string(value)
	}
	return out
}

// TestMountedSecrets reads a secret in the form in which Kubernetes mounts it, and links that lead
// elsewhere.
func TestMountedSecrets(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Rename(mounted(t, map[string]string{"token": "abc", ".dockerconfigjson": "{}"}), filepath.Join(dir, "auth")))
	ctx := context.Background()
	got, err := source.DirSecrets(dir).Secret(ctx, "default", "auth")
	if err != nil || !reflect.DeepEqual(texts(got), map[string]string{"token": "abc", ".dockerconfigjson": "{}"}) {
		t.Errorf("%q, %v", got, err)
	}
	outside := filepath.Join(t.TempDir(), "canary")
	must(t, os.WriteFile(outside, []byte("canary"), 0o600))
	for name, target := range map[string]string{"absolute": outside, "relative": "../../../../../../" + outside, "dangling": "nowhere"} {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		link(t, target, filepath.Join(dir, name, "key"))
		if got, err := source.DirSecrets(dir).Secret(ctx, "default", name); err == nil || errors.Is(err, fs.ErrNotExist) || len(got.Data) != 0 {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	link(t, "nowhere", filepath.Join(dir, "lost"))
	if _, err := source.DirSecrets(dir).Secret(ctx, "default", "lost"); err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "lost is a link to what does not exist") {
		t.Error(err)
	}
	if _, err := source.DirSecrets(outside).Secret(ctx, "default", "auth"); err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "secret default/auth: directory of secrets: ") {
		t.Error(err)
	}
}

func lookup(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, found := env[name]
		return value, found
	}
}

func TestEnvSecrets(t *testing.T) {
	secrets := source.EnvSecrets(lookup(map[string]string{
		"HEADGATE_SECRET_GIT_AUTH_USERNAME":        "alice",
		"HEADGATE_SECRET_GIT_AUTH_PASSWORD":        "pass\n",
		"HEADGATE_SECRET_GIT_AUTH_CA_CRT":          "pem",
		"HEADGATE_SECRET_GIT_AUTH_BEARERTOKEN":     "",
		"HEADGATE_SECRET_GIT_AUTH_KEYS":            "alice.asc, bob.sshpub,,",
		"HEADGATE_SECRET_GIT_AUTH_BOB_SSHPUB":      "ssh-ed25519",
		"HEADGATE_SECRET_REGCRED_DOCKERCONFIGJSON": "{}",
		"HEADGATE_SECRET_A_B_C_TLS_KEY":            "key",
		"HEADGATE_SECRET_FORK_PASSWORD":            "",
		"HEADGATE_SECRET_SIGNERS_KEYS":             " ,alice.asc",
	}))
	ctx := context.Background()
	got, err := secrets.Secret(ctx, "any", "git-auth")
	want := map[string]string{"username": "alice", "password": "pass\n", "ca.crt": "pem", "bob.sshpub": "ssh-ed25519"}
	if err != nil || got.Type != "Opaque" || !reflect.DeepEqual(texts(got), want) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := secrets.Secret(ctx, "any", "regcred"); err != nil || got.Type != "kubernetes.io/dockerconfigjson" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := secrets.Secret(ctx, "any", "a.b--c"); err != nil || texts(got)["tls.key"] != "key" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := secrets.Secret(ctx, "any", "none"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "HEADGATE_SECRET_NONE_<KEY>") {
		t.Error(err)
	}
	for name, want := range map[string]string{
		"fork":    "secret any/fork: variable HEADGATE_SECRET_FORK_PASSWORD is empty: set it",
		"signers": `secret any/signers: variable HEADGATE_SECRET_SIGNERS_KEYS names the key "alice.asc", but there is no variable HEADGATE_SECRET_SIGNERS_ALICE_ASC`,
	} {
		if _, err := secrets.Secret(ctx, "any", name); err == nil || errors.Is(err, fs.ErrNotExist) || err.Error() != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = secrets.PullSecrets(ctx, "any", "sa")
	testenv.ErrorIs(t, err, fs.ErrNotExist)
}

// failingSecrets is a place that fails.
type failingSecrets struct{ err error }

func (f failingSecrets) Secret(context.Context, string, string) (source.Secret, error) {
	return source.Secret{}, f.err
}

func (f failingSecrets) PullSecrets(context.Context, string, string) ([]source.Secret, error) {
	return nil, f.err
}

func TestChain(t *testing.T) {
	set := secretSet(t)
	dir := t.TempDir()
	write(t, dir, map[string]string{"auth/password": "of the directory", "elsewhere/password": "x", "sops/a": "plain"})
	env := source.EnvSecrets(lookup(nil))
	all := source.Chain(set, env, source.DirSecrets(dir))
	ctx := context.Background()
	for name, want := range map[string]string{"auth": "new", "elsewhere": "x"} {
		if got, err := all.Secret(ctx, "apps", name); err != nil || string(got.Data["password"]) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if got, err := all.Secret(ctx, "apps", "sops"); err != nil || string(got.Data["a"]) != "plain" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := all.PullSecrets(ctx, "apps", "mixed"); err != nil || len(got) != 2 {
		t.Errorf("%q, %v", got, err)
	}
	_, err := all.Secret(ctx, "apps", "none")
	for _, want := range []string{"secret apps/none does not exist: ", "no such document; ", "HEADGATE_SECRET_NONE_<KEY>; ", "none/KEY"} {
		testenv.ErrorIs(t, err, fs.ErrNotExist)
		testenv.ErrorSays(t, err, want)
	}
	_, err = all.PullSecrets(ctx, "apps", "none")
	testenv.ErrorIs(t, err, fs.ErrNotExist)
	// If the secret of a service account is missing, the service account is not looked up
	// elsewhere.
	_, err = source.Chain(set, failingSecrets{fs.ErrPermission}).PullSecrets(ctx, "apps", "mixed")
	testenv.ErrorIs(t, err, fs.ErrPermission)
	_, err = source.Chain(set, env).PullSecrets(ctx, "apps", "mixed")
	testenv.ErrorSays(t, err, "service account apps/mixed: secret apps/elsewhere does not exist")
	_, err = source.Chain(failingSecrets{fs.ErrPermission}, set).Secret(ctx, "apps", "auth")
	testenv.ErrorIs(t, err, fs.ErrPermission)
	if _, err := source.Chain(failingSecrets{fs.ErrNotExist}, set).Secret(ctx, "apps", "auth"); err != nil {
		t.Error(err)
	}
	if _, err := source.Chain().Secret(ctx, "apps", "auth"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "no secrets were given") {
		t.Error(err)
	}
}
