package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout"
)

func (p *program) hook() *cobra.Command {
	return group("hook", "Call the webhooks of a rollout", p.callHook())
}

// hookFlags say which webhook is called, and with which payload.
type hookFlags struct {
	manifestFlags
	outputFlags
	tlsFlags
	hook                 rollout.Hook // set by flags for a URL, or from a manifest
	bearerFile, hmacFile string       // names of files
	headers              []string
	payload              rollout.Payload
	revision, message    string
	metadata             []string
	warning              bool
	attemptTimeout       time.Duration
}

// hookURLFlags describe a webhook at a URL. A manifest has fields for that.
var hookURLFlags = []string{"type", "retries", "insecure-skip-verify", "ca-file", "cert", "key", "bearer-token-file", "header", "hmac-key-file"}

func (p *program) callHook() *cobra.Command {
	f := new(hookFlags)
	c := &cobra.Command{
		Use:   "call {-f FILE|DIR|- [[NAMESPACE/]CANARY] WEBHOOK | URL}",
		Short: "Call one webhook, and print its answer and what a rollout would do",
		Long: `Call sends one webhook what a rollout would send: a WEBHOOK of a Canary, or the webhook at a URL, for which flags replace
the fields of a manifest. The rules of rollouts apply, retries too: see docs/reference/canaries.md, Webhooks.

--metadata is added to the metadata of the manifest. The payload has the metadata headgate.trial: "true", so that headgate
tester does not show it as a canary that is waiting; --metadata headgate.trial=false sends what a rollout would.

The body of the answer is printed with control characters replaced; -o body prints it unchanged, and nothing else.

Exit codes: 0 the webhook passes (type rollback: it asks for a rollback), 1 it does not pass or did not answer, 2 usage or
an invalid object.`,
		Example: `  headgate hook call -f canary.yaml approve --phase Waiting
  headgate hook call https://gate.example.org/gate/check --type confirm-promotion --name app --namespace prod
  headgate hook call http://127.0.0.1:8080/ --metadata type=bash --metadata "cmd=curl -sf http://127.0.0.1:9898/" --request-timeout 1m`,
		Args: rangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error { return p.runCallHook(c, f, args) },
	}
	f.manifestFlags.register(c)
	fl := c.Flags()
	types := textsOf(rollout.HookTypes())
	choiceVar(c, (*string)(&f.hook.Type), "type", "", "`TYPE` of the webhook at a URL: "+joinOr(types)+"; default rollout", types...)
	fl.IntVar(&f.hook.Retries, "retries", 0, "`NUMBER` of attempts after the first, for a URL")
	fl.BoolVar(&f.hook.DisableTLS, "insecure-skip-verify", false, "do not verify the certificate of a URL, like disableTLS in a manifest")
	f.tlsFlags.register(c, "a URL")
	fl.StringVar(&f.bearerFile, "bearer-token-file", "", "`FILE` with a bearer token for a URL")
	fl.StringArrayVar(&f.headers, "header", nil, "`NAME: VALUE` of a header for a URL; repeatable")
	fl.StringVar(&f.hmacFile, "hmac-key-file", "", "`FILE` with a key that signs requests to a URL")
	fl.StringVar(&f.payload.Name, "name", "", "`NAME` of the canary; default that of the manifest, or app")
	fl.StringVarP(&f.payload.Namespace, "namespace", "n", "", "`NAMESPACE` of the canary; default that of the manifest, or default")
	fl.StringVar((*string)(&f.payload.Phase), "phase", "", "`PHASE` of the canary; default one in which webhooks of the type are called")
	fl.StringVar(&f.payload.Checksum, "checksum", "", "`TEXT` to send as the checksum of the revision; default that of --revision")
	fl.StringVar(&f.revision, "revision", "", "`TEXT` of the revision whose checksum is sent")
	fl.StringArrayVar(&f.metadata, "metadata", nil, "`KEY=VALUE` of the metadata in the payload; repeatable")
	fl.StringVar(&f.message, "event-message", "", "`TEXT` of the event, for type event")
	fl.BoolVar(&f.warning, "event-warning", false, "make the event a warning, for type event")
	spanVar(c, &f.attemptTimeout, "request-timeout", 0, "time limit of each attempt; default that of the manifest, or 10s")
	f.registerFormat(c, "text", "json", "body")
	completeFlag(c, "phase", textsOf(rollout.Phases())...)
	c.ValidArgsFunction = completeHooks(&f.manifestFlags)
	return c
}

func textsOf[T ~string](values []T) []string {
	return mapSlice(values, func(v T) string { return string(v) })
}

func (p *program) runCallHook(c *cobra.Command, f *hookFlags, args []string) (err error) {
	if f.attemptTimeout < 0 {
		return usage("--request-timeout %s: want a positive time", f.attemptTimeout)
	}
	caller := &rollout.Caller{Proxy: http.ProxyFromEnvironment}
	defer caller.Close()
	if len(f.files) > 0 {
		caller.Secrets, err = p.hookFromManifest(c, f, args)
	} else {
		caller.Secrets, err = f.hookFromURL(args)
	}
	if err == nil {
		err = f.fill()
	}
	if err != nil {
		return err
	}
	ctx, start, answer := c.Context(), time.Now(), rollout.Answer{}
	if f.hook.Type == rollout.HookEvent {
		answer, err = caller.Event(ctx, f.hook, rollout.Event{
			Message: cmp.Or(f.message, "headgate hook call"), Warning: f.warning, Time: start,
			Name: f.payload.Name, Namespace: f.payload.Namespace, Phase: f.payload.Phase, Checksum: f.payload.Checksum,
		})
	} else {
		answer, err = caller.Call(ctx, f.hook, f.payload)
	}
	switch {
	case ctx.Err() != nil:
		return failure(context.Cause(ctx))
	case err != nil && answer.Attempts == 0:
		return err // nothing was called
	}
	if err := p.printCall(f, answer, err, time.Since(start)); err != nil {
		return failure(err)
	}
	if err != nil {
		return &exitError{exitFailed, nil}
	}
	return nil
}

// hookFromManifest finds the webhook in a manifest, and returns the Secrets for it.
func (p *program) hookFromManifest(c *cobra.Command, f *hookFlags, args []string) (rollout.Secrets, error) {
	for _, flag := range hookURLFlags {
		if c.Flags().Changed(flag) {
			return nil, usage("--%s requires a URL: set the field of the webhook in the manifest", flag)
		}
	}
	b, err := p.readDocuments(&f.manifestFlags)
	if err != nil {
		return nil, err
	}
	p.warn(b.warnings...)
	last := len(args) - 1
	canary, err := b.findCanary(strings.Join(args[:last], ""))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, hook := range canary.Spec.Analysis.Webhooks {
		if hook.Name == args[last] {
			f.hook = hook
			f.payload.Name, f.payload.Namespace = cmp.Or(f.payload.Name, canary.Metadata.Name), cmp.Or(f.payload.Namespace, canary.Namespace())
			return p.rolloutSecrets(f.secrets, b.secrets)
		}
		names = append(names, hook.Name)
	}
	return nil, usage("canary %s has no webhook %q; there are %s", canaryName(canary), args[last], cmp.Or(strings.Join(names, ", "), "none"))
}

// hookFromURL sets the webhook from a URL and flags, and returns the Secrets for it.
func (f *hookFlags) hookFromURL(args []string) (rollout.Secrets, error) {
	if len(args) != 1 {
		return nil, usage("%d arguments, want one URL; webhooks of a Canary need -f", len(args))
	}
	u, err := url.Parse(args[0])
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, usage("%q is no URL with http or https; webhooks of a Canary need -f", redact.WithoutPassword(args[0]))
	}
	f.hook.Name, f.hook.URL = u.Hostname(), args[0]
	access, err := readKeys(keyFile{"bearer-token-file", f.bearerFile, "bearerToken"}, keyFile{"hmac-key-file", f.hmacFile, "hmacKey"})
	certificates, err2 := f.tlsFlags.read()
	if err := cmp.Or(err, err2); err != nil {
		return nil, err
	}
	for _, text := range f.headers {
		if name, _, found := strings.Cut(text, ":"); !found || strings.TrimSpace(name) == "" {
			return nil, usage("--header %q: want NAME: VALUE", redact.String(text))
		}
		access["headers"] = []byte(strings.Join(f.headers, "\n"))
	}
	secrets := map[string]map[string][]byte{"access": access, "certificates": certificates}
	if len(access) > 0 {
		f.hook.SecretRef = &rollout.SecretRef{Name: "access"}
	}
	if len(certificates) > 0 {
		f.hook.CertSecretRef = &rollout.SecretRef{Name: "certificates"}
	}
	return func(_ context.Context, _, name string) (map[string][]byte, error) { return secrets[name], nil }, nil
}

// fill completes the payload and the webhook with flags and defaults.
func (f *hookFlags) fill() error {
	l := &f.payload
	l.Name, l.Namespace = cmp.Or(l.Name, "app"), cmp.Or(l.Namespace, rollout.DefaultNamespace)
	l.Phase = cmp.Or(l.Phase, map[rollout.HookType]rollout.Phase{
		rollout.HookConfirmRollout: rollout.Waiting, rollout.HookPostRollout: rollout.Succeeded,
	}[f.hook.Type], rollout.Progressing)
	if !slices.Contains(rollout.Phases(), l.Phase) {
		return usage("--phase %q: want one of %s", l.Phase, strings.Join(textsOf(rollout.Phases()), " "))
	}
	if l.Checksum == "" && f.revision != "" {
		l.Checksum = rollout.Checksum(f.revision)
	}
	l.Metadata = map[string]string{rollout.MetadataTrial: "true"}
	maps.Copy(l.Metadata, f.hook.Metadata)
	for _, text := range f.metadata {
		key, value, found := strings.Cut(text, "=")
		if !found || key == "" {
			return usage("--metadata %q: want KEY=VALUE", redact.String(text))
		}
		l.Metadata[key] = value
	}
	f.hook.Metadata = l.Metadata
	f.hook.Timeout = cmp.Or(rollout.Duration(f.attemptTimeout), f.hook.Timeout)
	if f.hook.Type != rollout.HookEvent && (f.message != "" || f.warning) {
		return usage("--event-message and --event-warning go with webhooks of type event; this one is of type %s", f.hook.Kind())
	}
	return nil
}

// tlsFlags name the files of certificates for a server that is called.
type tlsFlags struct{ ca, cert, key string }

func (f *tlsFlags) register(c *cobra.Command, server string) {
	fl := c.Flags()
	fl.StringVar(&f.ca, "ca-file", "", "`FILE` with the CA certificates of "+server+"; default those of the system")
	fl.StringVar(&f.cert, "cert", "", "`FILE` with the client certificate for "+server+"; needs --key")
	fl.StringVar(&f.key, "key", "", "`FILE` with the key of --cert")
}

// read returns the content of the files by the keys that a Secret has.
func (f *tlsFlags) read() (map[string][]byte, error) {
	if (f.cert == "") != (f.key == "") {
		return nil, usage("--cert and --key go together")
	}
	return readKeys(keyFile{"ca-file", f.ca, "ca.crt"}, keyFile{"cert", f.cert, "tls.crt"}, keyFile{"key", f.key, "tls.key"})
}

// A keyFile is a flag that names the file of a key of a Secret.
type keyFile struct{ flag, file, key string }

// readKeys returns the content of the files that are given, by key, without line breaks at the end.
func readKeys(files ...keyFile) (map[string][]byte, error) {
	data := map[string][]byte{}
	for _, f := range files {
		if f.file == "" {
			continue
		}
		value, err := os.ReadFile(f.file)
		if err != nil {
			return nil, usage("--%s: %w", f.flag, err)
		}
		if data[f.key] = bytes.TrimRight(value, "\r\n"); len(data[f.key]) == 0 {
			return nil, usage("--%s: %s is empty", f.flag, f.file)
		}
	}
	return data, nil
}

// verdictMeanings say what a verdict does to a rollout.
var verdictMeanings = map[rollout.Verdict]string{
	rollout.Pass:     "the rollout goes on",
	rollout.Halt:     "the rollout does not go on, and a failed check is counted",
	rollout.Pause:    "the rollout waits until it passes",
	rollout.Fire:     "the rollout is rolled back",
	rollout.NoFire:   "no rollback is asked for",
	rollout.LogError: "the rollout goes on; the error is logged",
}

// A callDocument is a call as -o json prints it.
type callDocument struct {
	Name     string           `json:"name"`
	Type     rollout.HookType `json:"type"`
	URL      string           `json:"url"`
	Accepted bool             `json:"accepted"`
	Verdict  string           `json:"verdict"`
	Status   int              `json:"status,omitempty"`
	Attempts int              `json:"attempts,omitempty"`
	Seconds  float64          `json:"seconds"`
	Error    string           `json:"error,omitempty"`

	Body      *string `json:"body,omitempty"`
	Base64    string  `json:"bodyBase64,omitempty"` // of a body that is not UTF-8
	Truncated bool    `json:"bodyTruncated,omitempty"`
}

// printCall prints the result of a call. Refusal says why there is no answer, or why the type
// of the webhook does not accept it; nil if it does.
func (p *program) printCall(f *hookFlags, answer rollout.Answer, refusal error, took time.Duration) error {
	kind, reason, body := f.hook.Kind(), "", string(answer.Body)
	verdict := kind.Judge(refusal)
	if refusal != nil {
		reason = redact.String(refusal.Error()) + unreachableHint(refusal)
	}
	took = took.Round(time.Millisecond)
	switch {
	case f.output == "body":
		if refusal != nil && answer.Status == 0 {
			fmt.Fprintf(p.stderr, "headgate: %s\n", reason)
		}
		_, err := io.WriteString(p.stdout, body)
		return err
	case f.machineReadable():
		d := callDocument{
			Name: f.hook.Name, Type: kind, URL: redact.String(f.hook.URL), Accepted: refusal == nil, Verdict: verdict.String(), Error: reason,
			Status: answer.Status, Attempts: answer.Attempts, Seconds: took.Seconds(), Truncated: answer.Truncated,
		}
		if answer.Status != 0 && utf8.ValidString(body) {
			d.Body = &body
		} else if answer.Status != 0 {
			d.Base64 = base64.StdEncoding.EncodeToString(answer.Body)
		}
		return printValue(p.stdout, f.output, d)
	}
	lines := [][]string{{"webhook", fmt.Sprintf("%s (%s) %s", f.hook.Name, kind, f.hook.URL)}}
	if answer.Status != 0 {
		lines = append(lines, []string{"status", strings.TrimSpace(fmt.Sprintf("%d %s", answer.Status, http.StatusText(answer.Status)))})
	}
	if answer.Attempts > 0 {
		lines = append(lines, []string{"attempts", fmt.Sprintf("%d in %s", answer.Attempts, took)})
	}
	if lines = append(lines, []string{"verdict", verdict.String() + ": " + verdictMeanings[verdict]}); reason != "" {
		lines = append(lines, []string{"reason", reason})
	}
	if err := p.table(true).print(lines...); err != nil || body == "" {
		return err
	}
	suffix := ""
	if answer.Truncated {
		suffix = "\n(and more)"
	}
	_, err := io.WriteString(p.stdout, "\n"+strings.TrimRight(printable(body), "\n")+suffix+"\n")
	return err
}

// printable returns text in which characters that could control a terminal are replaced.
// Line breaks and tabs stay.
func printable(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, string(utf8.RuneError)), "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) || unicode.IsSpace(r) && !unicode.IsControl(r) && r != '\u2028' && r != '\u2029' {
			return r
		}
		return utf8.RuneError
	}, text)
}

// completeHooks offers the webhooks of the canaries in the files of -f.
func completeHooks(f *manifestFlags) cobra.CompletionFunc {
	return completeNames(2, func(_ context.Context, _ *cobra.Command, args []string) (names []string) {
		canaries := f.completionCanaries()
		for _, canary := range canaries {
			if len(args) == 0 && len(canaries) > 1 {
				names = append(names, canaryName(canary))
			} else if len(args) == 0 || args[0] == canaryName(canary) || args[0] == canary.Metadata.Name {
				for _, hook := range canary.Spec.Analysis.Webhooks {
					names = append(names, hook.Name)
				}
			}
		}
		return names
	})
}
