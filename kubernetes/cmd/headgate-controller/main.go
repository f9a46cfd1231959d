// Command headgate-controller replaces source-controller: it keeps the sources of a Kubernetes
// cluster up to date. It accepts the same flags and environment, processes the same objects, and
// serves their artifacts.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/azure"
	"github.com/headgate-io/headgate/bucket/gcs"
	"github.com/headgate-io/headgate/bucket/s3"
	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/kubernetes/controller"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/cosign"
	"github.com/headgate-io/headgate/oci/notation"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/aws"
	azurelogin "github.com/headgate-io/headgate/source/login/azure"
	"github.com/headgate-io/headgate/source/login/gcp"
	"github.com/headgate-io/headgate/source/login/github"
	"github.com/headgate-io/headgate/source/serve"
	"github.com/headgate-io/headgate/source/serve/notify"
)

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(40) // most live memory is objects, and ready objects cause few allocations
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process immediately
	err := run(ctx, os.Args[1:], os.LookupEnv, os.Stderr)
	switch {
	case err == nil || errors.Is(err, pflag.ErrHelp):
	case errors.As(err, new(usageError)):
		fmt.Fprintln(os.Stderr, "headgate-controller:", err)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "headgate-controller:", err)
		os.Exit(1)
	}
}

// libraryLogs sets the process-wide loggers of libraries once. They must be set before the first
// log entry.
var libraryLogs sync.Once

// run runs the controller until ctx ends or the lease is lost.
func run(ctx context.Context, args []string, lookup func(string) (string, bool), stderr io.Writer) (err error) {
	f, warnings, err := parse(args, lookup, stderr)
	if err != nil {
		return err
	}
	logger, err := f.logger(stderr)
	if err != nil {
		return err
	}
	libraries := logr.FromSlogHandler(logger.Handler())
	libraryLogs.Do(func() {
		log.SetLogger(libraries)
		klog.SetSlogLogger(logger)
	})
	for _, text := range warnings {
		logger.Warn("flags", "problem", text)
	}
	selector, err := labels.Parse(f.selector)
	if err != nil {
		return usageError{fmt.Errorf("--watch-label-selector: %w", err)}
	}
	namespace := ""
	if !f.allNamespaces {
		if namespace = f.namespace; namespace == "" {
			return usageError{errors.New("--watch-all-namespaces=false: set RUNTIME_NAMESPACE to the namespace that is watched")}
		}
	}
	reach := config.GetConfig
	if f.kubeconfig != "" {
		reach = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", f.kubeconfig) }
	}
	cluster, err := reach()
	if err != nil {
		return err
	}
	cluster.Wrap(controller.LogRefusals(logger))
	cluster.QPS, cluster.Burst = f.qps, f.burst
	if f.crds {
		if err := controller.Define(ctx, cluster, f.group, f.beta); err != nil {
			return fmt.Errorf("--crds: %w", err)
		}
	}
	scope := controller.Scope{Selector: selector, Shards: f.shards, Shard: f.shard}
	setup := controller.Options{Group: f.group, StateDir: filepath.Join(f.storagePath, ".state"), Scope: scope}
	options := manager.Options{
		Logger:                 libraries,
		Cache:                  controller.CacheOptions(scope, namespace),
		Metrics:                metricsserver.Options{BindAddress: f.metricsAddr},
		HealthProbeBindAddress: f.healthAddr,

		LeaderElection: f.elect, LeaderElectionID: f.leaseName(), // only labels metrics; the lock interface below is the lease
		LeaderElectionReleaseOnCancel: f.release,
		LeaseDuration:                 &f.lease, RenewDeadline: &f.renew, RetryPeriod: &f.retry,
	}
	if f.elect {
		l, err := f.openLease(cluster)
		if err != nil {
			return err
		}
		if err := l.checkExclusive(ctx); err != nil {
			return err
		}
		options.LeaderElectionResourceLockInterface, setup.Begin, setup.Held = l, l.checkExclusive, l.checkHeld
	}
	mgr, err := manager.New(cluster, options)
	if err != nil {
		return err
	}
	listener, err := httpserve.Listen(httpserve.Endpoint{Addr: f.storageAddr, Insecure: true}, false, "", func(err error) { logger.Warn("storage", "problem", err.Error()) })
	if err != nil {
		return fmt.Errorf("--storage-addr: %w", err)
	}
	served := false
	defer func() {
		if !served {
			err = errors.Join(err, listener.Close())
		}
	}()
	base, err := f.advertised(listener.Addr())
	if err != nil {
		return err
	}
	allow, err := f.newURLCheck(base)
	if err != nil {
		return usageError{err}
	}
	store, end, err := f.openStore(base)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	c, err := f.serveConfig(lookup)
	if err != nil {
		return err
	}
	c.Store, c.Log = store, logger
	c.Artifacts = &artifact.Client{MaxBytes: f.maxBytes, Temp: store.Temp, Allow: allow}
	setup.Serve, setup.Unwatched, setup.Identities, setup.DefaultAccount = c, !f.watchSecrets, f.gates[identities], f.defaultAccount
	server, err := controller.Setup(mgr, setup)
	if err != nil {
		return err
	}
	if f.hooksAddr != "" {
		if err := mgr.Add(leaderlessRunnable(func(ctx context.Context) error { return f.serveHooks(ctx, server, logger) })); err != nil {
			return err
		}
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served = true
	logger.Info("artifacts are served", "addr", listener.Addr().String(), "url", store.URL(""))
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		ended <- listener.Serve(ctx, artifacts(store.Handler(), server.Ready), logger, func(context.Context) error { return nil })
	}()
	err = mgr.Start(ctx)
	cancel()
	return errors.Join(err, <-ended)
}

// artifacts serves artifacts. It also answers the probe in source-controller's Deployment, which
// requests the root path.
func artifacts(stored http.Handler, ready func() bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/":
			stored.ServeHTTP(w, r)
		case !ready():
			http.Error(w, controller.ErrNotReady.Error(), http.StatusServiceUnavailable)
		}
	})
}

// serveHooks serves the webhooks of the objects until ctx ends.
func (f *flags) serveHooks(ctx context.Context, server *serve.Server, logger *slog.Logger) error {
	listener, err := httpserve.Listen(httpserve.Endpoint{Addr: f.hooksAddr, Insecure: true}, false, "", func(err error) { logger.Warn("webhooks", "problem", err.Error()) })
	if err != nil {
		return fmt.Errorf("--hooks-addr: %w", err)
	}
	logger.Info("webhooks are served", "addr", listener.Addr().String())
	return listener.Serve(ctx, controller.Hooks(server), logger, func(context.Context) error { return nil })
}

// A leaderlessRunnable is a [manager.Runnable] that runs without the lease.
type leaderlessRunnable func(context.Context) error

func (a leaderlessRunnable) Start(ctx context.Context) error { return a(ctx) }
func (a leaderlessRunnable) NeedLeaderElection() bool        { return false }

// advertised returns the address for the URLs of artifacts. at is the address of the listener.
func (f *flags) advertised(at net.Addr) (string, error) {
	if f.storageAdvAddr != "" {
		return f.storageAdvAddr, nil
	}
	host, port, err := net.SplitHostPort(at.String())
	if err != nil {
		return "", err
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		if host, err = os.Hostname(); err != nil {
			return "", err
		}
	}
	return net.JoinHostPort(host, port), nil
}

// openStore opens the store and its cache. The caller must call end, which closes both.
func (f *flags) openStore(base string) (_ *artifact.Store, end func() error, err error) {
	if err := os.MkdirAll(f.storagePath, 0o700); err != nil {
		return nil, nil, fmt.Errorf("--storage-path: %w", err)
	}
	cache, err := artifact.OpenCache(artifact.CacheConfig{Dir: filepath.Join(f.storagePath, ".cache")})
	if err != nil {
		return nil, nil, err
	}
	store, err := artifact.OpenStore(artifact.StoreConfig{
		Dir: f.storagePath, BaseURL: base, Algorithm: artifact.Algorithm(f.digest), Keep: f.records, KeepFor: f.recordsFor, Cache: cache,
	})
	if err != nil {
		return nil, nil, errors.Join(err, cache.Close())
	}
	return store, func() error { return errors.Join(store.Close(), cache.Close()) }, nil
}

// serveConfig returns the server configuration for the flags.
func (f *flags) serveConfig(lookup func(string) (string, bool)) (c serve.Config, err error) {
	c = serve.Config{Fetches: f.concurrent, MinRetry: f.minRetry, MaxRetry: f.maxRetry, Jitter: float64(f.jitter) / 100}
	if f.jitter == 0 { // 0 would mean the default
		c.Jitter = -1
	}
	c.Env.Proxy = http.ProxyFromEnvironment
	c.Env.Limits.Bytes = f.maxBytes
	c.Origin = headgate.Origins{
		Buckets:   map[string]bucket.Provider{"generic": s3.Connect, "aws": s3.Connect, "gcp": gcs.Connect, "azure": azure.Connect},
		Verifiers: map[string]oci.Technology{"cosign": cosign.New(cosign.Config{Cache: filepath.Join(f.storagePath, ".cache", "sigstore")}), "notation": notation.New},
		Logins: map[string]source.LoginFunc{
			"aws":    (&aws.Provider{Lookup: lookup}).Login,
			"azure":  (&azurelogin.Provider{Lookup: lookup}).Login,
			"gcp":    (&gcp.Provider{Lookup: lookup}).Login,
			"github": new(github.Provider).Login,
		},
	}.New
	c.Hooks = f.hookSecret
	if c.Callers, err = controller.NoCallers(); err != nil {
		return c, err
	}
	c.Notify.Proxy = http.ProxyFromEnvironment
	c.Notify.Instance, _ = os.Hostname()
	if f.eventsAddr != "" {
		r, err := notify.ParseReceiver(f.eventsAddr)
		if err != nil {
			return c, usageError{fmt.Errorf("--events-addr: %w", err)}
		}
		c.Notify.Receivers = []notify.Receiver{r}
	}
	return c, nil
}

// logger returns a logger as the flags configure it.
func (f *flags) logger(w io.Writer) (*slog.Logger, error) {
	level, known := map[string]slog.Level{"trace": slog.LevelDebug, "debug": slog.LevelDebug, "info": slog.LevelInfo, "error": slog.LevelError}[f.logLevel]
	if !known {
		return nil, usageError{fmt.Errorf("--log-level %q: want trace, debug, info or error", f.logLevel)}
	}
	options := &slog.HandlerOptions{Level: level}
	switch f.logEncoding {
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	case "console":
		return slog.New(slog.NewTextHandler(w, options)), nil
	}
	return nil, usageError{fmt.Errorf("--log-encoding %q: want json or console", f.logEncoding)}
}
