package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// flags are the settings from the arguments and the environment.
type flags struct {
	group         string
	crds, beta    bool   // apply the definitions; serve v1beta2 too
	namespace     string // namespace of the lease, and to watch unless allNamespaces is set
	allNamespaces bool
	selector      string
	kubeconfig    string

	watchSecrets   bool
	gates          map[string]bool
	defaultAccount string
	hooksAddr      string
	hookSecret     string

	storagePath, storageAddr, storageAdvAddr string
	digest                                   string
	records                                  int
	recordsFor                               time.Duration

	concurrent         int
	maxBytes           int64
	jitter             uint8
	minRetry, maxRetry time.Duration

	eventsAddr, healthAddr, metricsAddr string
	logLevel, logEncoding               string

	elect, release      bool
	lease, renew, retry time.Duration
	qps                 float32
	burst               int

	shards      int
	shard       int
	pod         string   // pod name, which ends with the ordinal of the shard
	sourceAddrs []string // artifacts of other controllers may be fetched below these addresses
}

// ignoredFlags are flags of source-controller that have no effect, with the reasons.
var ignoredFlags = map[string]string{
	"requeue-dependency":           "what an object needs is watched",
	"helm-cache-max-size":          "indexes are not kept in memory",
	"helm-cache-ttl":               "indexes are not kept in memory",
	"helm-cache-purge-interval":    "indexes are not kept in memory",
	"helm-index-max-size":          "indexes are read without being held in memory",
	"helm-chart-max-size":          "--max-bytes bounds what is fetched",
	"helm-chart-file-max-size":     "--max-bytes bounds what is fetched",
	"ssh-kex-algos":                "those of golang.org/x/crypto are offered",
	"ssh-hostkey-algos":            "those of the known hosts are offered",
	"token-cache-max-size":         "tokens are kept as long as the objects that use them",
	"token-cache-max-duration":     "tokens are kept until they expire",
	"watch-configs-label-selector": "Secrets that objects name are watched, whatever their labels: see --watch-secrets",
}

// gates are the feature gates of source-controller, and whether they can be enabled.
var gates = map[string]bool{"CacheSecretsAndConfigMaps": false, identities: true}

// identities is the feature gate for spec.serviceAccountName with a provider.
const identities = "ObjectLevelWorkloadIdentity"

// usageError is an error of the arguments.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// parse parses arguments and environment. It returns warnings about accepted flags without effect.
func parse(args []string, lookup func(string) (string, bool), out io.Writer) (f *flags, warnings []string, err error) {
	f = new(flags)
	env := func(name, value string) string {
		if text, _ := lookup(name); text != "" {
			return text
		}
		return value
	}
	fl := pflag.NewFlagSet("headgate-controller", pflag.ContinueOnError)
	fl.SetOutput(out)
	fl.SortFlags = false
	f.namespace = env("RUNTIME_NAMESPACE", "")
	fl.StringVar(&f.group, "group", source.ReferenceGroup, "API group of the objects: "+source.ReferenceGroup+" or "+source.Group)
	fl.BoolVar(&f.crds, "crds", false, "apply the definitions of the group at the start; refused if another field manager has them")
	fl.BoolVar(&f.beta, "with-v1beta2", false, "with --crds: have version v1beta2 served as well")
	fl.BoolVar(&f.allNamespaces, "watch-all-namespaces", true, "watch objects in all namespaces; else in that of RUNTIME_NAMESPACE")
	fl.StringVar(&f.selector, "watch-label-selector", "", "watch objects with matching labels, such as 'sharding.fluxcd.io/key=shard1'")
	fl.IntVar(&f.shards, "shards", 1, "controllers that share the objects, by a hash of their names. The ordinal at the end of the pod's name (POD_NAME, or that of the host) says which one this is. More than 1 asks for a lease")
	fl.StringSliceVar(&f.sourceAddrs, "source-addrs", nil, "further addresses, as host and port or URL, below which artifacts are fetched that this controller does not keep; default that of --storage-adv-addr and those of the other shards")
	fl.StringVar(&f.storagePath, "storage-path", env("STORAGE_PATH", "/data"), "directory of the artifacts (STORAGE_PATH)")
	fl.StringVar(&f.storageAddr, "storage-addr", env("STORAGE_ADDR", ":9090"), "address at which artifacts are served (STORAGE_ADDR)")
	fl.StringVar(&f.storageAdvAddr, "storage-adv-addr", env("STORAGE_ADV_ADDR", ""), "host and port in URLs of artifacts (STORAGE_ADV_ADDR); default the name of the host")
	fl.StringVar(&f.digest, "artifact-digest-algo", string(artifact.SHA256), "algorithm of the digests of artifacts")
	fl.IntVar(&f.records, "artifact-retention-records", 2, "superseded artifacts of an object that stay")
	fl.DurationVar(&f.recordsFor, "artifact-retention-ttl", time.Minute, "how long a superseded artifact stays")
	fl.IntVar(&f.concurrent, "concurrent", 0, "contents fetched at a time; default 2 for each processor. Checks are not bound by it")
	fl.Int64Var(&f.maxBytes, "max-bytes", 0, "most uncompressed bytes of one source; 0 is the default of its kind, -1 no limit")
	fl.Uint8Var(&f.jitter, "interval-jitter-percentage", 5, "part by which intervals and retries vary, 0 to 50")
	fl.DurationVar(&f.minRetry, "min-retry-delay", 750*time.Millisecond, "time until the first attempt after a failure")
	fl.DurationVar(&f.maxRetry, "max-retry-delay", 15*time.Minute, "the longest between two attempts")
	fl.StringVar(&f.eventsAddr, "events-addr", env("EVENTS_ADDR", ""), "URL of the receiver of events (EVENTS_ADDR)")
	fl.StringVar(&f.healthAddr, "health-addr", env("HEALTH_ADDR", ":9440"), "address of /healthz and /readyz (HEALTH_ADDR)")
	fl.StringVar(&f.metricsAddr, "metrics-addr", env("METRICS_ADDR", ":8080"), "address of /metrics (METRICS_ADDR); 0 for none")
	fl.StringVar(&f.logLevel, "log-level", "info", "what is logged: trace, debug, info or error")
	fl.StringVar(&f.logEncoding, "log-encoding", "json", "how: json or console")
	fl.BoolVar(&f.elect, "enable-leader-election", false, "run sources only while holding a lease")
	fl.BoolVar(&f.release, "leader-election-release-on-cancel", true, "give the lease back at the end")
	fl.DurationVar(&f.lease, "leader-election-lease-duration", 35*time.Second, "how long others wait for the holder of the lease")
	fl.DurationVar(&f.renew, "leader-election-renew-deadline", 30*time.Second, "how long the holder tries to renew the lease before it ends")
	fl.DurationVar(&f.retry, "leader-election-retry-period", 5*time.Second, "time between two attempts at the lease")
	fl.Float32Var(&f.qps, "kube-api-qps", 400, "requests to the API server in a second")
	fl.IntVar(&f.burst, "kube-api-burst", 800, "requests to the API server at once")
	fl.BoolVar(&f.watchSecrets, "watch-secrets", true, "check sources when Secrets and service accounts change; if false these are read only, and a changed one counts at the next interval")
	fl.StringVar(&f.defaultAccount, "default-service-account", "", "name of the service account whose identity objects with a cloud provider use if they name none; needs the gate "+identities)
	fl.StringVar(&f.hooksAddr, "hooks-addr", "", "address of webhooks, /hook/KIND/NAMESPACE/NAME; none if empty")
	fl.StringVar(&f.hookSecret, "hook-secret", "", "name of the Secret for webhooks, in the namespace of the object, if the object names none")
	fl.StringVar(&f.kubeconfig, "kubeconfig", "", "file that says how to reach the API server; default that of the pod, of KUBECONFIG or ~/.kube/config")
	fl.Bool("no-cross-namespace-refs", false, "accepted: sources never refer to other namespaces")
	switched := fl.StringSlice("feature-gates", nil, "list of NAME=true or NAME=false; "+identities+"=true has spec.serviceAccountName be the identity that a cloud provider is shown")
	for name, why := range ignoredFlags {
		fl.String(name, "", "accepted without effect: "+why)
	}
	if err := fl.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil, nil, err
		}
		return nil, nil, usageError{err}
	}
	fl.Visit(func(one *pflag.Flag) {
		if why := ignoredFlags[one.Name]; why != "" {
			warnings = append(warnings, fmt.Sprintf("--%s has no effect: %s", one.Name, why))
		}
	})
	more, err := f.readGates(*switched)
	if err == nil {
		err = f.check(fl.Args())
	}
	if host, _ := os.Hostname(); err == nil && f.shards > 1 {
		f.elect, f.pod = true, env("POD_NAME", host)
		f.shard, err = f.ordinal()
	}
	if err != nil {
		return nil, nil, usageError{err}
	}
	return f, append(warnings, more...), nil
}

// readGates parses feature gates.
func (f *flags) readGates(switched []string) (warnings []string, err error) {
	f.gates = make(map[string]bool)
	for _, text := range switched {
		name, value, _ := strings.Cut(text, "=")
		on, err := strconv.ParseBool(value)
		if err != nil {
			return nil, fmt.Errorf("--feature-gates %q: want NAME=true or NAME=false", text)
		}
		if may, known := gates[name]; !known || on && !may {
			warnings = append(warnings, fmt.Sprintf("--feature-gates: %s has no effect", name))
		}
		f.gates[name] = on
	}
	return warnings, nil
}

// check returns an error for invalid flag values and combinations.
func (f *flags) check(rest []string) error {
	for _, wrong := range []struct {
		is   bool
		text string
	}{
		{len(rest) > 0, "arguments are not taken, only flags"},
		{f.group != source.ReferenceGroup && f.group != source.Group, "--group: want " + source.ReferenceGroup + " or " + source.Group},
		{f.beta && !f.crds, "--with-v1beta2 requires --crds"},
		{f.jitter > 50, "--interval-jitter-percentage: want 50 or less"},
		{f.minRetry <= 0 || f.maxRetry < f.minRetry, "--min-retry-delay: want a time above 0, and --max-retry-delay or less"},
		{f.records < 1, "--artifact-retention-records: want 1 or more: consumers fetch what a status told them a moment ago"},
		{f.shards < 1, "--shards: want 1 or more"},
		{f.concurrent < 0, "--concurrent: want 1 or more"},
		{f.defaultAccount != "" && !f.gates[identities], "--default-service-account: it needs --feature-gates=" + identities + "=true"},
		{f.hookSecret != "" && f.hooksAddr == "", "--hook-secret: it needs --hooks-addr"},
	} {
		if wrong.is {
			return errors.New(wrong.text)
		}
	}
	return nil
}
