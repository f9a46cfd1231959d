package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
	"github.com/headgate-io/headgate/source/serve/api"
)

// serverFlags configure the connection to a server and the token of the client.
type serverFlags struct {
	tlsFlags
	server, tokenFile string
	requestTimeout    time.Duration
}

// register adds the flags. The text what names the server and the default.
func (f *serverFlags) register(c *cobra.Command, what string) {
	fl := c.Flags()
	fl.StringVar(&f.server, "server", "", "`URL` of "+what)
	fl.StringVar(&f.tokenFile, "token-file", "", "`FILE` with the token for the server; default the token in the variable HEADGATE_TOKEN")
	f.tlsFlags.register(c, "the server")
	spanVar(c, &f.requestTimeout, "request-timeout", 30*time.Second, "time limit of one request; 0 for none")
}

// requestContext returns a context with the time limit of one request.
func (f *serverFlags) requestContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if f.requestTimeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, f.requestTimeout, fmt.Errorf("no answer within %s", f.requestTimeout))
}

// connect returns a client for the server of the flags. If no flag names a server, it takes the URL
// from the environment variable, or else fallback, which may be "".
func (p *program) connect(f *serverFlags, variable, fallback string) (c api.Client, err error) {
	c.Base = cmp.Or(f.server, p.getenv(variable), fallback)
	if c.Base != "" && !strings.HasPrefix(c.Base, "http://") && !strings.HasPrefix(c.Base, "https://") {
		return c, usage("--server %q is no URL with http or https", redact.WithoutPassword(c.Base))
	}
	certificates, err := f.tlsFlags.read()
	token, err2 := readKeys(keyFile{"token-file", f.tokenFile, "token"})
	if err := cmp.Or(err, err2); err != nil {
		return c, err
	}
	if c.Token = cmp.Or(string(token["token"]), p.getenv("HEADGATE_TOKEN")); strings.ContainsAny(c.Token, "\r\n") {
		return c, usage("the token has more than one line")
	}
	config := new(tls.Config)
	if f.cert != "" {
		pair, err := tls.X509KeyPair(certificates["tls.crt"], certificates["tls.key"])
		if err != nil {
			return c, usage("--cert, --key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if f.ca != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(certificates["ca.crt"]) {
			return c, usage("--ca-file: %s has no certificates in PEM form", f.ca)
		}
	}
	c.HTTP = &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, ForceAttemptHTTP2: true}}
	return c, nil
}

// user returns the name of the user who runs the command, or "" if it is unknown.
func (p *program) user() string {
	name := p.getenv("USER")
	if u, err := user.Current(); err == nil && name == "" { // USER may be unset in services and containers
		name = u.Username
	}
	return name
}

// reportConnection reports that the server is lost, or if err is nil that it is back.
func (p *program) reportConnection(err error) {
	if err == nil {
		fmt.Fprintln(p.stderr, "headgate: the server is back")
		return
	}
	fmt.Fprintf(p.stderr, "headgate: %s: trying again until it is back\n", redact.String(err.Error()))
}

// checkStoreDir returns an error unless dir is a directory.
func checkStoreDir(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return usage("there is no store %s, and no server is named: use --store DIR or --server URL", dir)
	case err == nil && !info.IsDir():
		return usage("--store %s is no directory", dir)
	}
	return err
}

// statusStoreFlags name the store or server with the statuses of sources, and select sources.
type statusStoreFlags struct {
	serverFlags
	selection
	outputFlags
	store string
	watch bool
}

func (f *statusStoreFlags) register(p *program, c *cobra.Command) {
	f.serverFlags.register(c, "the server, or unix:PATH of its socket; default the server of --store")
	registerStore(c, &f.store)
	f.selection.register(c)
	c.ValidArgsFunction = p.completeStatuses(f)
}

// A statusStore returns the statuses of sources from a running server, or from the files of a
// store.
type statusStore struct {
	*program
	*statusStoreFlags
	client *api.Client // nil if no server uses the store
	ledger *source.Ledger
}

// openStatusStore opens the status store that the flags name and selects sources by args. If needed
// is set, args must not be empty. If server is set, a server must be running.
func (p *program) openStatusStore(f *statusStoreFlags, args []string, needed, server bool) (*statusStore, error) {
	if err := f.parseArguments(args, needed); err != nil {
		return nil, err
	}
	k := &statusStore{p, f, nil, ledgerOf(f.store)}
	socket, isSocket := strings.CutPrefix(f.server, "unix:")
	if f.server != "" && !isSocket {
		c, err := p.connect(&f.serverFlags, "", "")
		c.Lost, k.client = p.reportConnection, &c
		return k, err
	}
	if !isSocket {
		if err := checkStoreDir(f.store); err != nil {
			return nil, err
		}
		note, err := serve.NoteOf(f.store)
		switch {
		case errors.Is(err, fs.ErrPermission):
			return nil, fmt.Errorf("--store %s: %w: act as the user that it belongs to, or name the server with --server URL", f.store, err)
		case err != nil:
			return nil, fmt.Errorf("--store %s: %w", f.store, err)
		case note == nil && server:
			return nil, fmt.Errorf("no server uses the store %s: start one with headgate serve, or name it with --server URL", f.store)
		case note == nil:
			fmt.Fprintf(p.stderr, "headgate: no server uses the store %s: working on its files\n", f.store)
			return k, nil
		case note.PID == 0 || note.Socket != "" && !exists(note.Socket):
			return nil, fmt.Errorf("the server of %s%s is about to start or to end: try again", f.store, note)
		case note.Socket == "":
			return nil, fmt.Errorf("the server of %s%s has no socket: name it with --server", f.store, note)
		}
		socket = note.Socket
	}
	if _, err := os.Stat(socket); err != nil {
		return nil, fmt.Errorf("--server: socket of the server: %w", err)
	}
	k.client = &api.Client{Socket: socket, Lost: p.reportConnection}
	return k, nil
}

// sources returns the selected sources, ordered by kind, namespace and name, and the defects of
// documents. If full is set, the sources include their documents.
func (k *statusStore) sources(ctx context.Context, full bool) (selected []api.Source, defects []string, err error) {
	var found []api.Source
	if k.client == nil {
		set, err := k.ledger.List()
		k.warn(err)
		for _, obj := range set.Objects {
			s, err := k.savedSource(obj)
			if err != nil {
				return nil, nil, err
			}
			found = append(found, s)
		}
	} else {
		ctx, cancel := k.requestContext(ctx)
		defer cancel()
		if found, defects, err = k.client.Sources(ctx, k.filter()); err != nil {
			return nil, nil, err
		}
	}
	for _, s := range found {
		ref, labels := sourceRef(s), map[string]string(nil)
		if !k.selectsName(ref) {
			continue
		}
		if k.client != nil && (full || k.selector != "") {
			if s, err = k.client.Source(ctx, ref); err != nil {
				return nil, nil, err
			}
		}
		if k.selector != "" {
			obj, err := decodeObject(s.Document)
			if err != nil {
				return nil, nil, err
			}
			labels = obj.Head().Metadata.Labels
		}
		if k.selects(ref, labels) {
			selected = append(selected, s)
		}
	}
	return selected, defects, nil
}

// savedSource returns a saved object in the form in which a server returns it.
func (k *statusStore) savedSource(obj source.Object) (api.Source, error) {
	hold, err := k.ledger.Suspension(source.ReferenceTo(obj))
	k.warn(err)
	v := serve.View{Object: obj, Phase: serve.Idle, Suspension: hold}
	switch {
	case hold != nil || obj.Plan().Suspend:
		v.Phase = serve.Suspended
	case obj.Common().Condition(source.StalledCondition).Status == "True":
		v.Phase = serve.Stalled
	}
	s := serve.Summary(v)
	text, err := source.EncodeYAML(source.Masked(obj))
	s.Document = string(text)
	return s, err
}

// sourceRef returns the reference of a source. The kind in its document may be that of either API
// group.
func sourceRef(s api.Source) source.Reference {
	kind, known := source.ParseKind(s.Kind)
	if !known {
		kind = s.Kind
	}
	return source.Reference{Kind: kind, Namespace: s.Namespace, Name: s.Name}
}

// argumentOfSource returns a source as an argument of commands, with the kind as in its document.
func argumentOfSource(s api.Source) string {
	return sourceName(source.Reference{Kind: s.Kind, Namespace: s.Namespace, Name: s.Name})
}

// completeStatuses completes the sources of the store, and kinds.
func (p *program) completeStatuses(f *statusStoreFlags) cobra.CompletionFunc {
	return completeNames(math.MaxInt, func(ctx context.Context, c *cobra.Command, args []string) []string {
		quietProgram := &program{stdin: p.stdin, stdout: p.stderr, stderr: io.Discard, lookupEnv: p.lookupEnv}
		var found []api.Source
		_ = quietProgram.setFlagsFromEnv(c)
		k, err := quietProgram.openStatusStore(f, nil, false, false)
		if err == nil {
			found, _, err = k.sources(ctx, false)
		}
		if err != nil {
			return nil
		}
		names := append([]string{"bucket", "git", "oci", "helmrepo", "helmchart", "ea"}, mapSlice(found, argumentOfSource)...)
		return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(args, name) })
	})
}
