package oci_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// canary is a password that must not appear in any text.
const canary = "cAnArY-passw0rd/+="

// dockerLogin returns the Secret with the password for a registry.
func dockerLogin(host, password string) source.Secret {
	text := fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, host, base64.StdEncoding.EncodeToString([]byte("user:"+password)))
	return source.Secret{Type: "kubernetes.io/dockerconfigjson", Data: map[string][]byte{".dockerconfigjson": []byte(text)}}
}

// repository returns an OCIRepository that follows the tag latest.
func repository(g *testenv.Registry) *source.OCIRepository {
	r := &source.OCIRepository{
		Header: source.Header{APIVersion: "source.headgate.dev/v1", Kind: "OCIRepository",
			Metadata: source.Metadata{Name: "app", Namespace: "default"}},
		Spec: source.OCIRepositorySpec{URL: g.URL("team/app"), Interval: source.Duration(time.Hour), Timeout: source.Duration(time.Minute)},
	}
	r.Spec.Insecure = strings.HasPrefix(g.Base, "http:")
	return r
}

// An upstream is a repository of a registry, for the conformance suite.
type upstream struct {
	t       *testing.T
	g       *testenv.Registry
	variant variant
	secrets sourcetest.Secrets

	tree   fstest.MapFS // published last
	pushed int          // number of publications
	defect sourcetest.Defect
}

// A variant is one way to publish an artifact and to select it.
type variant struct {
	config testenv.RegistryConfig
	tls    bool
	spec   func(*source.OCIRepositorySpec)
	layer  func(testing.TB, fstest.MapFS) testenv.Blob // default: tar and gzip
	push   func(s *upstream, tag string, layers []testenv.Blob) ocispec.Descriptor
	signed bool
	kind   func(*sourcetest.Kind)
}

// Defects in addition to those of the suite.
const (
	noTag         sourcetest.Defect = "no tag"
	wrongPassword sourcetest.Defect = "wrong password"
	noLayer       sourcetest.Defect = "no such layer"
	noLayers      sourcetest.Defect = "no layers"
	noArchive     sourcetest.Defect = "no archive"
	noManifest    sourcetest.Defect = "no manifest"
	badRange      sourcetest.Defect = "range that is none"
	noMatch       sourcetest.Defect = "nothing in range"
	stallManifest sourcetest.Defect = "stall manifest"
	stallBlob     sourcetest.Defect = "stall before the blob"
	stallToken    sourcetest.Defect = "stall token"

	unsigned sourcetest.Defect = "no signature"
	noKeys   sourcetest.Defect = "no keys"
)

// broken maps defects to those of the registry.
var broken = map[sourcetest.Defect]*testenv.Defect{
	sourcetest.Gone:         {Status: http.StatusNotFound},
	sourcetest.Denied:       {Status: http.StatusForbidden},
	sourcetest.Leaking:      {Do: testenv.Leak, Status: http.StatusBadRequest},
	sourcetest.Truncated:    {Phase: testenv.GetBlob, Do: testenv.End, After: 100},
	"cut":                   {Phase: testenv.GetBlob, Do: testenv.Cut, After: 100},
	"flipped":               {Phase: testenv.GetBlob, Do: testenv.Flip, After: 100},
	"flipped manifest":      {Phase: testenv.GetManifest, Do: testenv.Flip, After: 100},
	"no blob":               {Phase: testenv.GetBlob, Status: http.StatusNotFound},
	sourcetest.StallResolve: {Do: testenv.Stall, After: -1},
	sourcetest.StallFetch:   {Phase: testenv.GetBlob, Do: testenv.Stall, After: 100},
	stallManifest:           {Phase: testenv.GetManifest, Do: testenv.Stall, After: 20},
	stallBlob:               {Phase: testenv.GetBlob, Do: testenv.Stall, After: -1},
	stallToken:              {Phase: testenv.GetToken, Do: testenv.Stall, After: 10},
}

func (s *upstream) Publish(tree fstest.MapFS) error {
	s.tree = tree
	s.pushed++
	s.push()
	return nil
}

// push publishes the tree again, changed by the defect if there is one.
func (s *upstream) push() {
	layer := s.variant.layer
	if layer == nil {
		layer = testenv.TarGzip
	}
	layers := []testenv.Blob{layer(s.t, s.tree)}
	switch s.defect {
	case noLayers:
		layers = nil
	case noArchive:
		layers[0].Data = []byte("this is no archive of any sort")
	}
	tag := fmt.Sprintf("1.0.%d", s.pushed)
	push := s.variant.push
	if push == nil {
		push = (*upstream).manifest
	}
	subject := push(s, tag, layers)
	if s.defect == noManifest {
		subject = s.g.PushRaw("team/app", tag, "application/json", []byte(`{"hello": "world"}`))
	}
	if s.variant.signed {
		s.sign(subject)
	}
	s.g.PushRaw("team/app", "latest", subject.MediaType, s.g.Manifest("team/app", tag))
}

// sign publishes a signature of subject, changed by the defect if there is one.
func (s *upstream) sign(subject ocispec.Descriptor) {
	claimed := subject.Digest
	if s.defect == sourcetest.Forged {
		claimed = someDigest
	}
	signer(s.t).Sign(s.g, "team/app", subject, claimed)
	if s.defect == unsigned {
		s.g.Untag("team/app", testenv.SignatureTag(subject))
	}
}

// manifest pushes an artifact with layers.
func (s *upstream) manifest(tag string, layers []testenv.Blob) ocispec.Descriptor {
	return s.g.Push("team/app", tag, testenv.Manifest{Layers: layers, Annotations: map[string]string{ocispec.AnnotationRevision: tag}})
}

// index pushes an index with the artifact for one platform and another one for another.
func (s *upstream) index(_ string, layers []testenv.Blob) ocispec.Descriptor {
	tag := fmt.Sprintf("1.0.%d", s.pushed)
	other := s.manifest("", []testenv.Blob{testenv.TarGzip(s.t, fstest.MapFS{"for": {Data: []byte("another platform")}})})
	other.Platform = &ocispec.Platform{OS: "linux", Architecture: "arm64"}
	matching := s.manifest("", layers)
	matching.Platform = &ocispec.Platform{OS: "linux", Architecture: "amd64"}
	return s.g.PushIndex("team/app", tag, testenv.Index{Manifests: []ocispec.Descriptor{other, matching}})
}

// second pushes an artifact whose first layer is not the selected one.
func (s *upstream) second(tag string, layers []testenv.Blob) ocispec.Descriptor {
	decoy := testenv.Blob{MediaType: "application/vnd.example.decoy", Data: []byte("decoy")}
	return s.manifest(tag, slices.Concat([]testenv.Blob{decoy}, layers))
}

func (s *upstream) Break(d sourcetest.Defect) <-chan struct{} {
	before := s.defect
	s.defect = d
	if pushes[before] || pushes[d] {
		s.push()
	}
	stalled := s.g.Break(broken[d])
	return stalled
}

// pushes are the defects of the published artifact.
var pushes = map[sourcetest.Defect]bool{noLayers: true, noArchive: true, noManifest: true, sourcetest.Signed: true, sourcetest.Forged: true, unsigned: true}

func (s *upstream) Object() source.Object {
	r := repository(s.g)
	spec := &r.Spec
	spec.SecretRef = &source.LocalReference{Name: "login"}
	if !spec.Insecure {
		spec.CertSecretRef = &source.LocalReference{Name: "tls"}
	}
	if s.variant.spec != nil {
		s.variant.spec(spec)
	}
	switch s.defect {
	case sourcetest.Signed, sourcetest.Forged, unsigned:
		signed(spec)
	case noKeys:
		signed(spec)
		spec.Verify.SecretRef.Name = "absent"
	case sourcetest.Invalid:
		spec.URL = "https://" + s.g.Host + "/team/app"
	case sourcetest.NoSecret:
		spec.SecretRef.Name = "absent"
	case wrongPassword:
		spec.SecretRef.Name = "wrong"
	case noTag:
		spec.Ref = &source.OCIRepositoryRef{Tag: "absent"}
	case badRange:
		spec.Ref = &source.OCIRepositoryRef{SemVer: "no range"}
	case noMatch:
		spec.Ref = &source.OCIRepositoryRef{SemVer: ">=7"}
	case noLayer:
		spec.LayerSelector = &source.OCILayerSelector{MediaType: "application/absent"}
	}
	return r
}

func (s *upstream) Origin(obj source.Object) source.Origin {
	return oci.New(obj.(*source.OCIRepository), source.Env{Secrets: s.secrets}, technologies)
}

func (s *upstream) Traffic() sourcetest.Traffic {
	return sourcetest.Traffic{Requests: s.g.Count(), Content: int64(s.g.Count(testenv.GetBlob))}
}

func (s *upstream) Secrets() []string {
	return append(s.g.Tokens(), secretForms...)
}

// variants are the combinations that run the whole suite.
var variants = map[string]variant{
	"tag": {},
	"bearer tokens that expire, over mutual TLS": {
		config: testenv.RegistryConfig{Mutual: true, Username: "user", Password: canary, Bearer: &testenv.Bearer{Uses: 2}},
		tls:    true,
		layer:  testenv.TarPlain,
		kind: func(k *sourcetest.Kind) {
			k.KeepFailures(sourcetest.Denied, sourcetest.NoSecret, sourcetest.Leaking, "cut")
			k.Failures = append(k.Failures, sourcetest.NewFailure(wrongPassword, "AuthenticationFailed", "401"))
			k.Stalls = append(k.Stalls, stallToken)
		},
	},
	"signed index": {push: (*upstream).index, signed: true, kind: verifies},
	"copy of a selected layer": {
		push: (*upstream).second,
		spec: func(s *source.OCIRepositorySpec) {
			s.LayerSelector = &source.OCILayerSelector{MediaType: testenv.LayerTarGzip, Operation: source.LayerCopy}
		},
		kind: copies,
	},
}

func TestConformance(t *testing.T) {
	for name, v := range variants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind := conforming(func(tb sourcetest.TB) sourcetest.Upstream { return newUpstream(tb.(*testing.T), v) })
			if v.kind != nil {
				kind.Variant, kind.Hostile = true, nil // names in layers do not depend on the variant
				v.kind(&kind)
			}
			sourcetest.Run(t, kind)
		})
	}
}

func newUpstream(t *testing.T, v variant) *upstream {
	config := v.config
	if v.tls {
		config.CA = testenv.NewCA(t)
	}
	g := testenv.StartRegistry(t, config)
	s := &upstream{t: t, g: g, variant: v, secrets: sourcetest.Secrets{
		"default/login": dockerLogin(g.Host, canary), "default/wrong": dockerLogin(g.Host, "other-"+canary), "default/keys": trusted(t),
	}}
	if ca := config.CA; ca != nil {
		cert, key := ca.Client("user")
		s.secrets["default/tls"] = source.Secret{Data: map[string][]byte{"ca.crt": ca.PEM(), "tls.crt": cert, "tls.key": key}}
	}
	return s
}

// conforming returns the description of an OCIRepository for the suite.
func conforming(open func(sourcetest.TB) sourcetest.Upstream) sourcetest.Kind {
	return sourcetest.Kind{
		Name: "OCIRepository",
		Open: open,
		Drift: func(obj source.Object) {
			ignore := "/nothing-of-that-name\n"
			obj.(*source.OCIRepository).Spec.Ignore = &ignore
		},
		Failures: []sourcetest.Failure{
			sourcetest.NewFailure(sourcetest.Gone, "OCIArtifactPullFailed", "404"),
			sourcetest.NewFailure(sourcetest.Denied, "AuthenticationFailed", "403"),
			sourcetest.NewFailure(sourcetest.NoSecret, "AuthenticationFailed", "default/absent"),
			sourcetest.NewFailure(sourcetest.Leaking, "OCIArtifactPullFailed", "400"),
			sourcetest.NewFailure(sourcetest.Truncated, "OCIArtifactPullFailed", "ends after 100 of "),
			sourcetest.NewFailure("cut", "OCIArtifactPullFailed", "receive layer sha256:"),
			sourcetest.NewFailure("flipped", "OCIArtifactPullFailed", "instead of sha256:"),
			sourcetest.NewFailure("flipped manifest", "OCIArtifactPullFailed", "instead of sha256:"),
			sourcetest.NewFailure("no blob", "OCIArtifactPullFailed", "404"),
			sourcetest.NewFailure(noTag, "OCIArtifactPullFailed", "404"),
			sourcetest.NewFailure(noMatch, "ReadOperationFailed", "no tag of"),
			sourcetest.NewFailure(noLayer, "OCIArtifactLayerOperationFailed", `no layer has the media type "application/absent"`),
			sourcetest.NewFailure(noLayers, "OCIArtifactLayerOperationFailed", "no layers"),
			sourcetest.NewFailure(noArchive, "OCIArtifactLayerOperationFailed", "copy if it is not to be extracted"),
			sourcetest.NewFailure(noManifest, "OCIArtifactPullFailed", ""),
			{Defect: sourcetest.Invalid, Outcome: source.Stalled, Condition: "FetchFailed", Reason: "URLInvalid", Message: "oci://HOST/PATH"},
			{Defect: badRange, Outcome: source.Stalled, Condition: "FetchFailed", Reason: "ReadOperationFailed", Message: "spec.ref.semver"},
		},
		Stalls:       []sourcetest.Defect{sourcetest.StallResolve, stallManifest, stallBlob, sourcetest.StallFetch},
		Hostile:      []string{"../up", "a/../../up", "/absolute", `a\b`, "..", "a/.."},
		IgnoreFile:   ".sourceignore",
		IgnoreNested: true,
	}
}

// verifies sets the failures of signatures.
func verifies(k *sourcetest.Kind) {
	k.Verifies = true
	refused := func(d sourcetest.Defect, message string) sourcetest.Failure {
		return sourcetest.Failure{Defect: d, Outcome: source.Failed, Condition: "SourceVerified", Reason: "VerificationError", Message: message}
	}
	k.Failures = []sourcetest.Failure{
		refused(sourcetest.Forged, "signature of something else"), refused(unsigned, "is not signed"), refused(noKeys, "default/absent"),
	}
}

// copies sets the differences if the layer is stored unchanged.
func copies(k *sourcetest.Kind) {
	k.KeepFailures(sourcetest.Truncated, "cut", "flipped", "no blob", noLayer)
	k.Variant, k.IgnoreFile = false, "" // the stored content differs
}
