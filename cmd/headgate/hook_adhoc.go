package main

import (
	"context"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout"
)

// adhocFlags describe a webhook that no manifest does.
type adhocFlags struct {
	kind     string
	retries  int
	insecure bool
	ca       string
	cert     string
	key      string
	bearer   string
	headers  []string
	hmac     string
}

func (f *adhocFlags) register(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.kind, "type", "", "`TYPE` of the webhook at a URL: "+either(hookTypes)+"; default rollout")
	fl.IntVar(&f.retries, "retries", 0, "`NUMBER` of attempts after the first, for a URL")
	fl.BoolVar(&f.insecure, "insecure-skip-verify", false, "do not verify the certificate of the server of a URL, as disableTLS")
	fl.StringVar(&f.ca, "ca-file", "", "`FILE` of the certificates that the server of a URL is verified with")
	fl.StringVar(&f.cert, "cert", "", "`FILE` of the client certificate for a URL; with --key")
	fl.StringVar(&f.key, "key", "", "`FILE` of the key of --cert")
	fl.StringVar(&f.bearer, "bearer-token-file", "", "`FILE` of a token that a URL is sent")
	fl.StringArrayVar(&f.headers, "header", nil, "`NAME: VALUE` of a header that a URL is sent; repeatable")
	fl.StringVar(&f.hmac, "hmac-key-file", "", "`FILE` of a key by which requests to a URL are signed")
	complete(c, "type", hookTypes...)
}

var hookTypes = []string{
	string(rollout.HookConfirmRollout), string(rollout.HookPreRollout), string(rollout.HookRollout), string(rollout.HookConfirmTrafficIncrease),
	string(rollout.HookConfirmPromotion), string(rollout.HookPostRollout), string(rollout.HookRollback), string(rollout.HookEvent),
}

// unused refuses the flags of a URL where there is a manifest.
func (f *adhocFlags) unused() error {
	for flag, set := range map[string]bool{
		"type": f.kind != "", "retries": f.retries != 0, "insecure-skip-verify": f.insecure, "ca-file": f.ca != "", "cert": f.cert != "",
		"key": f.key != "", "bearer-token-file": f.bearer != "", "header": len(f.headers) > 0, "hmac-key-file": f.hmac != "",
	} {
		if set {
			return usage("--%s goes with a URL: set the field of the webhook in the manifest", flag)
		}
	}
	return nil
}

// The names of the Secrets that flags stand for.
const (
	accessSecret = "access"
	certSecret   = "certificates"
)

// adhocCall makes c that of the webhook at a URL.
func (p *program) adhocCall(c *call, f *hookFlags, args []string) error {
	if len(args) != 1 {
		return usage("%d arguments, want one URL; webhooks of a Canary need -f", len(args))
	}
	u, err := url.Parse(args[0])
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return usage("%q is no URL with http or https; webhooks of a Canary need -f", redact.Password(args[0]))
	}
	c.hook = rollout.Hook{Name: u.Hostname(), Type: rollout.HookType(f.kind), URL: args[0], Retries: f.retries, DisableTLS: f.insecure}
	if f.kind != "" && !slices.Contains(hookTypes, f.kind) {
		return usage("--type %q: want %s", f.kind, either(hookTypes))
	}
	access, err := f.access()
	if err != nil {
		return err
	}
	certificates, err := f.certificates()
	if err != nil {
		return err
	}
	if len(access) > 0 {
		c.hook.SecretRef = &rollout.SecretRef{Name: accessSecret}
	}
	if len(certificates) > 0 {
		c.hook.CertSecretRef = &rollout.SecretRef{Name: certSecret}
	}
	secrets := map[string]map[string][]byte{accessSecret: access, certSecret: certificates}
	c.caller.Secrets = func(_ context.Context, _, name string) (map[string][]byte, error) {
		if data := secrets[name]; len(data) > 0 {
			return data, nil
		}
		return nil, fmt.Errorf("secret %s: %w", name, fs.ErrNotExist)
	}
	return nil
}

// access returns the Secret with headers, token and key.
func (f *adhocFlags) access() (map[string][]byte, error) {
	data := map[string][]byte{}
	for _, text := range f.headers {
		if name, _, found := strings.Cut(text, ":"); !found || strings.TrimSpace(name) == "" {
			return nil, usage("--header %q: want NAME: VALUE", redact.String(text))
		}
	}
	if len(f.headers) > 0 {
		data["headers"] = []byte(strings.Join(f.headers, "\n"))
	}
	return data, readKeys(data, []keyFile{{"bearer-token-file", f.bearer, "bearerToken", true}, {"hmac-key-file", f.hmac, "hmacKey", true}})
}

// certificates returns the Secret for TLS.
func (f *adhocFlags) certificates() (map[string][]byte, error) {
	if (f.cert == "") != (f.key == "") {
		return nil, usage("--cert and --key go together")
	}
	data := map[string][]byte{}
	return data, readKeys(data, []keyFile{{"ca-file", f.ca, "ca.crt", false}, {"cert", f.cert, "tls.crt", false}, {"key", f.key, "tls.key", false}})
}

// A keyFile is a flag that names the file of a key of a Secret.
type keyFile struct {
	flag, file, key string
	line            bool // a line break at its end is none of it
}

func readKeys(data map[string][]byte, files []keyFile) error {
	for _, f := range files {
		if f.file == "" {
			continue
		}
		value, err := os.ReadFile(f.file)
		if err != nil {
			return usage("--%s: %w", f.flag, err)
		}
		if f.line {
			value = []byte(strings.TrimRight(string(value), "\r\n"))
		}
		if len(value) == 0 {
			return usage("--%s: %s is empty", f.flag, f.file)
		}
		data[f.key] = value
	}
	return nil
}
