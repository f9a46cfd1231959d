package headgate_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/headgate-io/headgate/"

// A packageRule lists what a package may import; its package comment says what it contains.
type packageRule struct {
	imports string // packages of this module that it imports directly
	modules string // external modules that may be among its dependencies, beyond those of the imported packages
	test    bool   // for tests only: no other package imports it
}

// packageRules is the import graph. A new package, a new edge and a new module each need a line here with
// a reason.
var packageRules = map[string]packageRule{
	"headgate": {imports: "artifact bucket chart git oci source source/generator source/lock source/provenance"}, // the module root: no cloud SDK, no technology of signatures

	"artifact": {imports: "internal/durable internal/redact internal/retry", modules: "github.com/klauspost/compress github.com/klauspost/readahead lukechampine.com/blake3 github.com/klauspost/cpuid/v2 " +
		"github.com/go-git/go-git/v5 github.com/go-git/go-billy/v5 github.com/go-git/gcfg github.com/jbenet/go-context gopkg.in/warnings.v0 golang.org/x/net golang.org/x/sync"}, // go-git: patterns of ignore rules; x/sync: files written concurrently
	"source": {imports: "artifact internal/document internal/durable internal/redact internal/zone", modules: "sigs.k8s.io/yaml go.yaml.in/yaml/v2 go.yaml.in/yaml/v3 github.com/Masterminds/semver/v3 github.com/bmatcuk/doublestar/v4"},

	"source/generator":  {imports: "artifact source internal/document"},
	"source/lock":       {imports: "artifact source internal/document", modules: "go.yaml.in/yaml/v3 github.com/cyberphone/json-canonicalization"},
	"source/provenance": {imports: "artifact internal/redact source source/lock", modules: "github.com/cyberphone/json-canonicalization"},
	"source/schema":     {imports: "source internal/document", modules: "go.yaml.in/yaml/v3"},

	"source/serve":         {imports: "artifact internal/document internal/durable internal/httpserve internal/redact internal/retry internal/secret source source/serve/api source/serve/journal source/serve/notify", modules: prometheusModules + " golang.org/x/sync"},
	"source/serve/api":     {imports: "artifact internal/call internal/retry source"},
	"source/serve/feed":    {imports: "artifact internal/document internal/durable source source/serve"},
	"source/serve/journal": {imports: "source source/serve/api"},
	"source/serve/notify":  {imports: "source internal/document internal/notify internal/secret"},

	"git":                   {imports: "artifact source internal/transport internal/redact internal/tunnel internal/version git/internal/config git/internal/lfs git/internal/local git/internal/object git/internal/packfile git/internal/wire internal/signature", modules: gitModules},
	"git/internal/config":   {},
	"git/internal/lfs":      {imports: "artifact git/internal/config git/internal/object internal/redact internal/transport", modules: "golang.org/x/net golang.org/x/sync golang.org/x/text github.com/pjbgf/sha1cd"},
	"git/internal/object":   {modules: "github.com/pjbgf/sha1cd github.com/klauspost/cpuid/v2"},
	"git/internal/packfile": {imports: "git/internal/object internal/durable", modules: "golang.org/x/sync github.com/klauspost/compress"},
	"git/internal/local":    {imports: "git/internal/config git/internal/object", modules: "github.com/klauspost/compress github.com/go-git/go-git/v5 github.com/go-git/go-billy/v5 github.com/jbenet/go-context golang.org/x/net"},
	"git/internal/wire":     {imports: "git/internal/object internal/origin internal/redact", modules: gitModules},

	"oci":                  {imports: "artifact source internal/redact internal/transport internal/version", modules: ociModules},
	"oci/internal/attempt": {imports: "oci source internal/redact", modules: "github.com/opencontainers/image-spec"},
	"oci/cosign":           {imports: "oci oci/internal/attempt source internal/transport internal/redact artifact", modules: sigstoreModules},
	"oci/notation":         {imports: "oci oci/internal/attempt source internal/transport internal/redact artifact", modules: notationModules},

	"bucket":       {imports: "artifact source internal/redact internal/transport", modules: "golang.org/x/net golang.org/x/sync"},
	"bucket/azure": {imports: "bucket source internal/transport", modules: azblobModules},
	"bucket/gcs":   {imports: "bucket source internal/transport", modules: gcsModules},
	"bucket/s3":    {imports: "bucket source internal/redact internal/transport", modules: s3Modules},

	"chart":                 {imports: "artifact source oci chart/index chart/internal/bundle internal/redact internal/signature internal/transport internal/version", modules: "helm.sh/helm/v3 github.com/dustin/go-humanize golang.org/x/sync"},
	"chart/index":           {modules: "github.com/Masterminds/semver/v3 go.yaml.in/yaml/v3"},
	"chart/internal/bundle": {imports: "artifact internal/document", modules: "helm.sh/helm/v3 github.com/pkg/errors github.com/Masterminds/semver/v3 sigs.k8s.io/yaml go.yaml.in/yaml/v2 go.yaml.in/yaml/v3"},

	"source/login/aws":               {imports: "source source/login/internal/exchange", modules: awsModules},
	"source/login/azure":             {imports: "source source/login/internal/exchange", modules: azureModules},
	"source/login/gcp":               {imports: "source source/login/internal/exchange", modules: gcpModules},
	"source/login/github":            {imports: "source internal/transport source/login/internal/exchange", modules: "github.com/golang-jwt/jwt/v5"},
	"source/login/internal/exchange": {imports: "internal/redact internal/transport source"},

	"rollout":          {imports: "internal/document internal/notify internal/redact internal/retry internal/secret", modules: "go.yaml.in/yaml/v3"},
	"rollout/metric":   {imports: "rollout internal/command internal/document internal/notify internal/placeholder internal/redact internal/secret"},
	"rollout/notify":   {imports: "rollout internal/document internal/notify internal/redact internal/secret"},
	"rollout/drive":    {imports: "rollout rollout/metric rollout/notify rollout/traffic internal/durable internal/redact internal/retry"},
	"rollout/simulate": {imports: "rollout"},
	"rollout/traffic":  {imports: "rollout internal/command internal/notify internal/placeholder internal/redact"},

	"rollout/tester":                {imports: "internal/document internal/httpserve internal/redact rollout rollout/tester/api rollout/tester/gate rollout/tester/remote rollout/tester/run rollout/tester/task", modules: prometheusModules + " golang.org/x/sync"},
	"rollout/tester/api":            {imports: "internal/call internal/retry"},
	"rollout/tester/gate":           {imports: "rollout/tester/api rollout/tester/internal/store", modules: bboltModules},
	"rollout/tester/internal/store": {imports: "internal/durable", modules: bboltModules},
	"rollout/tester/remote":         {imports: "rollout/tester/api rollout/tester/run internal/origin internal/redact internal/retry internal/zone"},
	"rollout/tester/run":            {imports: "rollout/tester/api rollout/tester/internal/store internal/redact", modules: bboltModules},
	"rollout/tester/task":           {imports: "rollout/tester/api rollout/tester/run internal/command", modules: "golang.org/x/sys"},

	"cmd/headgate": {
		imports: "headgate rollout/tester rollout/tester/api rollout/tester/gate rollout/tester/run rollout/tester/task rollout rollout/metric rollout/notify rollout/drive rollout/simulate rollout/traffic artifact bucket bucket/azure bucket/gcs bucket/s3 chart chart/index source source/generator source/lock source/provenance git oci oci/cosign oci/notation internal/command internal/document internal/durable internal/httpserve internal/redact internal/retry internal/zone source/login/aws source/login/azure source/login/gcp source/login/github source/schema " +
			"source/serve source/serve/api source/serve/feed source/serve/journal source/serve/notify", // sigs.k8s.io/yaml comes with source
		modules: "github.com/spf13/cobra github.com/spf13/pflag github.com/inconshreveable/mousetrap github.com/jedib0t/go-pretty/v6 github.com/mattn/go-runewidth github.com/clipperhouse/uax29/v2 golang.org/x/term golang.org/x/text github.com/rogpeppe/go-internal",
	},

	"examples/canary": {}, // a program that its example starts
	"examples/embed":  {imports: "headgate artifact source source/serve source/serve/feed"},

	"internal/call":        {imports: "internal/httpserve internal/origin internal/redact internal/retry"},
	"internal/durable":     {modules: "golang.org/x/sys"},
	"internal/command":     {},
	"internal/document":    {imports: "internal/redact", modules: "go.yaml.in/yaml/v3"},
	"internal/signature":   {modules: "github.com/ProtonMail/go-crypto github.com/cloudflare/circl golang.org/x/crypto golang.org/x/sys"},
	"internal/notify":      {imports: "internal/document internal/origin internal/redact internal/retry internal/secret"},
	"internal/origin":      {},
	"internal/httpserve":   {imports: "internal/document internal/redact", modules: "go.yaml.in/yaml/v3"},
	"internal/placeholder": {},
	"internal/redact":      {},
	"internal/retry":       {},
	"internal/secret":      {},
	"internal/transport":   {imports: "internal/origin source internal/redact internal/retry internal/secret internal/zone"},
	"internal/tunnel":      {imports: "internal/transport", modules: "golang.org/x/net"},
	"internal/zone":        {},
	"internal/version":     {modules: "github.com/Masterminds/semver/v3"},

	"git/internal/objecttest":         {imports: "git/internal/object", test: true},
	"internal/httpserve/pagetest":     {test: true},
	"internal/testenv/measure":        {test: true},
	"internal/schematest":             {imports: "internal/document source source/schema", modules: "github.com/santhosh-tekuri/jsonschema/v6 golang.org/x/text", test: true},
	"internal/testenv":                {imports: "internal/transport", modules: "github.com/aws/aws-sdk-go-v2 github.com/aws/smithy-go github.com/golang-jwt/jwt/v5 golang.org/x/crypto golang.org/x/sys golang.org/x/tools github.com/google/go-containerregistry github.com/opencontainers/image-spec github.com/opencontainers/go-digest github.com/klauspost/compress golang.org/x/mod sigs.k8s.io/yaml go.yaml.in/yaml/v2 go.yaml.in/yaml/v3", test: true},
	"source/login/internal/logintest": {imports: "artifact source git oci internal/testenv", test: true},
	"source/sourcetest":               {imports: "artifact source", test: true},
}

const ociModules = "oras.land/oras-go/v2 github.com/klauspost/readahead github.com/opencontainers/image-spec github.com/opencontainers/go-digest golang.org/x/sync golang.org/x/net"

// Modules for verifying signatures of OCI artifacts. Only their leaf packages may depend on them.
const (
	sigstoreModules = "github.com/sigstore/sigstore-go github.com/sigstore/sigstore github.com/sigstore/protobuf-specs github.com/sigstore/rekor github.com/sigstore/rekor-tiles/v2 " +
		"github.com/sigstore/timestamp-authority/v2 github.com/theupdateframework/go-tuf/v2 github.com/in-toto/attestation github.com/in-toto/in-toto-golang " +
		"github.com/secure-systems-lab/go-securesystemslib github.com/transparency-dev/formats github.com/transparency-dev/merkle " +
		"github.com/google/certificate-transparency-go github.com/google/go-containerregistry github.com/digitorus/pkcs7 github.com/digitorus/timestamp " +
		"github.com/cyberphone/json-canonicalization github.com/youmark/pkcs8 github.com/shibumi/go-pathspec " +
		"github.com/go-openapi/analysis github.com/go-openapi/errors github.com/go-openapi/jsonpointer github.com/go-openapi/jsonreference github.com/go-openapi/loads " +
		"github.com/go-openapi/runtime github.com/go-openapi/runtime/server-middleware github.com/go-openapi/spec github.com/go-openapi/strfmt " +
		"github.com/go-openapi/swag github.com/go-openapi/swag/cmdutils github.com/go-openapi/swag/conv github.com/go-openapi/swag/fileutils github.com/go-openapi/swag/jsonname " +
		"github.com/go-openapi/swag/jsonutils github.com/go-openapi/swag/loading github.com/go-openapi/swag/mangling github.com/go-openapi/swag/netutils " +
		"github.com/go-openapi/swag/pools github.com/go-openapi/swag/stringutils github.com/go-openapi/swag/typeutils github.com/go-openapi/swag/yamlutils " +
		"github.com/go-openapi/validate github.com/go-viper/mapstructure/v2 github.com/asaskevich/govalidator github.com/oklog/ulid/v2 github.com/google/uuid " +
		"github.com/blang/semver github.com/cenkalti/backoff/v5 github.com/cespare/xxhash/v2 github.com/pkg/errors github.com/go-logr/logr github.com/go-logr/stdr k8s.io/klog/v2 " +
		"go.opentelemetry.io/auto/sdk go.opentelemetry.io/otel go.opentelemetry.io/otel/metric go.opentelemetry.io/otel/trace " +
		"google.golang.org/grpc google.golang.org/protobuf google.golang.org/genproto/googleapis/api google.golang.org/genproto/googleapis/rpc github.com/grpc-ecosystem/grpc-gateway/v2 " +
		"golang.org/x/crypto golang.org/x/mod golang.org/x/sys golang.org/x/term golang.org/x/text"
	notationModules = "github.com/notaryproject/notation-go github.com/notaryproject/notation-core-go github.com/notaryproject/notation-plugin-framework-go github.com/notaryproject/tspclient-go " +
		"github.com/veraison/go-cose github.com/fxamacker/cbor/v2 github.com/x448/float16 github.com/golang-jwt/jwt/v4 golang.org/x/crypto golang.org/x/mod " +
		"github.com/go-ldap/ldap/v3 github.com/go-asn1-ber/asn1-ber github.com/Azure/go-ntlmssp github.com/google/uuid" // it parses certificate names with an LDAP client
)

// Modules for the state and the metrics of the test runner.
const (
	bboltModules      = "go.etcd.io/bbolt golang.org/x/sys"
	prometheusModules = "github.com/prometheus/client_golang github.com/prometheus/client_model github.com/prometheus/common github.com/prometheus/procfs " +
		"github.com/beorn7/perks github.com/cespare/xxhash/v2 github.com/munnerz/goautoneg google.golang.org/protobuf go.yaml.in/yaml/v2 golang.org/x/sys"
)

const gitModules = "golang.org/x/crypto golang.org/x/net golang.org/x/sync golang.org/x/sys golang.org/x/text github.com/Masterminds/semver/v3"

// The SDKs of the clouds' token services. Only their leaf packages may depend on them.
const (
	awsModules = "github.com/aws/aws-sdk-go-v2 github.com/aws/aws-sdk-go-v2/config github.com/aws/aws-sdk-go-v2/credentials github.com/aws/aws-sdk-go-v2/feature/ec2/imds " +
		"github.com/aws/aws-sdk-go-v2/internal/configsources github.com/aws/aws-sdk-go-v2/internal/endpoints/v2 github.com/aws/aws-sdk-go-v2/internal/v4a " +
		"github.com/aws/aws-sdk-go-v2/service/ecr github.com/aws/aws-sdk-go-v2/service/ecrpublic " +
		"github.com/aws/aws-sdk-go-v2/service/internal/accept-encoding github.com/aws/aws-sdk-go-v2/service/internal/presigned-url " +
		"github.com/aws/aws-sdk-go-v2/service/signin github.com/aws/aws-sdk-go-v2/service/sso github.com/aws/aws-sdk-go-v2/service/ssooidc " +
		"github.com/aws/aws-sdk-go-v2/service/sts github.com/aws/smithy-go"
	azureModules = "github.com/Azure/azure-sdk-for-go/sdk/azcore github.com/Azure/azure-sdk-for-go/sdk/azidentity github.com/Azure/azure-sdk-for-go/sdk/internal " +
		"github.com/AzureAD/microsoft-authentication-library-for-go github.com/golang-jwt/jwt/v5 github.com/google/uuid github.com/kylelemons/godebug " +
		"github.com/pkg/browser golang.org/x/crypto golang.org/x/sync golang.org/x/sys golang.org/x/text"
	gcpModules = "golang.org/x/oauth2 cloud.google.com/go/compute/metadata golang.org/x/sys"
)

// The SDKs of object stores. Only their leaf packages may depend on them.
const (
	gcsModules = "golang.org/x/text cel.dev/expr cloud.google.com/go cloud.google.com/go/auth cloud.google.com/go/auth/oauth2adapt cloud.google.com/go/compute/metadata " +
		"cloud.google.com/go/iam cloud.google.com/go/monitoring cloud.google.com/go/storage " +
		"github.com/GoogleCloudPlatform/opentelemetry-operations-go/detectors/gcp github.com/GoogleCloudPlatform/opentelemetry-operations-go/exporter/metric " +
		"github.com/GoogleCloudPlatform/opentelemetry-operations-go/internal/resourcemapping github.com/cespare/xxhash/v2 github.com/cncf/xds/go " +
		"github.com/envoyproxy/go-control-plane/envoy github.com/envoyproxy/protoc-gen-validate github.com/felixge/httpsnoop github.com/go-jose/go-jose/v4 " +
		"github.com/go-logr/logr github.com/go-logr/stdr github.com/google/s2a-go github.com/google/uuid github.com/googleapis/enterprise-certificate-proxy " +
		"github.com/googleapis/gax-go/v2 github.com/spiffe/go-spiffe/v2 go.opentelemetry.io/auto/sdk go.opentelemetry.io/contrib/detectors/gcp " +
		"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp " +
		"go.opentelemetry.io/otel go.opentelemetry.io/otel/metric go.opentelemetry.io/otel/sdk go.opentelemetry.io/otel/sdk/metric " +
		"go.opentelemetry.io/otel/trace golang.org/x/crypto golang.org/x/oauth2 golang.org/x/sync golang.org/x/sys golang.org/x/time google.golang.org/api " +
		"google.golang.org/genproto google.golang.org/genproto/googleapis/api google.golang.org/genproto/googleapis/rpc google.golang.org/grpc " +
		"google.golang.org/protobuf" // its gRPC client is linked, and not used
	s3Modules = "github.com/minio/minio-go/v7 github.com/minio/md5-simd github.com/minio/crc64nvme github.com/cespare/xxhash/v2 github.com/dustin/go-humanize " +
		"github.com/google/uuid github.com/klauspost/crc32 github.com/philhofer/fwd github.com/rs/xid github.com/tinylib/msgp github.com/zeebo/xxh3 " +
		"golang.org/x/crypto golang.org/x/sys golang.org/x/text gopkg.in/ini.v1"
	azblobModules = azureModules + " github.com/Azure/azure-sdk-for-go/sdk/storage/azblob " +
		"github.com/apache/arrow-go/v18 github.com/goccy/go-json github.com/google/flatbuffers github.com/pierrec/lz4/v4 github.com/zeebo/xxh3 golang.org/x/exp" // a listing may be in Arrow's format
)

// systems are the operating systems whose files are checked: an edge may exist on one of them only.
var systems = []string{"linux", "darwin", "windows"}

// A dependency is one package in the output of go list.
type dependency struct {
	path, module string // module is "" in the standard library
	imports      []string
	deps         []string
}

func goList(t *testing.T, system string) map[string]dependency {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f",
		"{{.ImportPath}}\t{{with .Module}}{{.Path}}{{end}}\t{{join .Imports \" \"}}\t{{join .Deps \" \"}}", "./...")
	cmd.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	must(t, err)
	all := map[string]dependency{}
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		all[f[0]] = dependency{f[0], f[1], strings.Fields(f[2]), strings.Fields(f[3])}
	}
	return all
}

func TestDeps(t *testing.T) {
	for _, system := range systems {
		t.Run(system, func(t *testing.T) {
			t.Parallel()
			all := goList(t, system)
			for path, d := range all {
				if name, inModule := packageName(path); inModule {
					checkPackage(t, name, d, all)
				}
			}
		})
	}
}

// packageName returns the key of a package in packageRules of this module; that of the module root is headgate.
func packageName(path string) (name string, inModule bool) {
	if path+"/" == module {
		return "headgate", true
	}
	return strings.CutPrefix(path, module)
}

func checkPackage(t *testing.T, name string, d dependency, all map[string]dependency) {
	r, ok := packageRules[name]
	if !ok {
		t.Errorf("%s is not in the table of deps_test.go", name)
		return
	}
	for _, path := range d.imports {
		other, inModule := packageName(path)
		if inModule && !slices.Contains(strings.Fields(r.imports), other) {
			t.Errorf("%s may not import %s", name, other)
		}
		if inModule && packageRules[other].test && !r.test {
			t.Errorf("%s imports %s, which is for tests only", name, other)
		}
	}
	if by := testingImporter(d, all); by != "" && !r.test {
		t.Errorf("%s depends on package testing, by %s", name, by)
	}
	allowed := append(modulesOf(name), "", strings.TrimSuffix(module, "/"))
	for _, path := range d.deps {
		if m := all[path].module; !slices.Contains(allowed, m) {
			t.Errorf("%s may not depend on module %s, here %s", name, m, path)
			allowed = append(allowed, m) // reported once
		}
	}
}

// testingImporter returns the package through which d depends on package testing, or "". One module is known
// to depend on it; that registers no flags.
func testingImporter(d dependency, all map[string]dependency) string {
	for _, path := range append(slices.Clone(d.deps), d.path) {
		if p := all[path]; slices.Contains(p.imports, "testing") && p.module != "github.com/digitorus/pkcs7" {
			return path
		}
	}
	return ""
}

// modulesOf returns the modules that a package and the packages that it imports may depend on.
func modulesOf(name string) []string {
	r := packageRules[name]
	modules := strings.Fields(r.modules)
	for _, other := range strings.Fields(r.imports) {
		modules = append(modules, modulesOf(other)...)
	}
	return modules
}

// TestDepsTable checks the table itself: imports point down, and no line of the core names a module
// that the core may never depend on.
func TestDepsTable(t *testing.T) {
	for name, r := range packageRules {
		checkAcyclic(t, name, nil)
		for _, other := range strings.Fields(r.imports) {
			if _, ok := packageRules[other]; !ok {
				t.Errorf("%s may import %s, which is not in the table", name, other)
			}
		}
	}
	clouds := []string{"k8s.io/", "cloud.google.com/", "google.golang.org/", "github.com/Azure/", "github.com/aws/", "github.com/minio/"}
	core := append([]string{"oras.land/", "helm.sh/"}, clouds...)
	facade := append([]string{"github.com/sigstore/", "github.com/notaryproject/"}, clouds...)
	for name, never := range map[string][]string{"artifact": core, "source": core, "git": core, "headgate": facade} {
		for _, m := range modulesOf(name) {
			if slices.ContainsFunc(never, func(prefix string) bool { return strings.HasPrefix(m, prefix) }) {
				t.Errorf("the table lets %s depend on %s", name, m)
			}
		}
	}
}

func checkAcyclic(t *testing.T, name string, above []string) {
	if slices.Contains(above, name) {
		t.Fatalf("the table has a cycle: %s", strings.Join(append(above, name), " → "))
	}
	for _, other := range strings.Fields(packageRules[name].imports) {
		checkAcyclic(t, other, append(slices.Clone(above), name))
	}
}
