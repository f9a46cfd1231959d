package chart_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/headgate-io/headgate/chart"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// repoCanary is a password that may show nowhere.
const repoCanary = "cAnArY-passw0rd/+="

// repoSecretForms are the canary as it may come to show.
var repoSecretForms = []string{repoCanary, url.QueryEscape(repoCanary), url.PathEscape(repoCanary), base64.StdEncoding.EncodeToString([]byte("user:" + repoCanary))}

// repoObject returns a PkgRepository that follows a server.
func repoObject(s *testenv.Charts) *source.PkgRepository {
	return &source.PkgRepository{
		Header: source.Header{APIVersion: "source.headgate.dev/v1", Kind: "PkgRepository",
			Metadata: source.Metadata{Name: "charts", Namespace: "default"}},
		Spec: source.PkgRepositorySpec{URL: s.URL(), Interval: source.Duration(time.Hour), Timeout: source.Duration(time.Minute)},
	}
}

// A repoUpstream is a repository of charts for the conformance suite. A tree is
// published as an index in which each file is the version of a chart.
type repoUpstream struct {
	s       *testenv.Charts
	variant repoVariant
	secrets sourcetest.Secrets
	defect  sourcetest.Defect
}

// A repoVariant is one way to serve an index.
type repoVariant struct {
	config testenv.ChartsConfig
	tls    bool
	spec   func(*source.PkgRepositorySpec)
	kind   func(*sourcetest.Kind)
}

// The defects beyond those of the suite.
const (
	repoNoIndex       sourcetest.Defect = "no index"
	repoWebPage       sourcetest.Defect = "web page"
	repoWrongPassword sourcetest.Defect = "wrong password"
	repoUnasked       sourcetest.Defect = "not modified, unasked"
	repoBusy          sourcetest.Defect = "busy"
	repoRegistry      sourcetest.Defect = "registry without its type"
	repoHalfSecret    sourcetest.Defect = "user name without password"
	repoBadTLS        sourcetest.Defect = "certificate that is none"
)

// repoBroken translates the defects that are the server's.
var repoBroken = map[sourcetest.Defect]*testenv.Defect{
	sourcetest.Gone:         {Status: http.StatusNotFound},
	sourcetest.Denied:       {Status: http.StatusForbidden},
	sourcetest.Leaking:      {Do: testenv.Leak, Status: http.StatusBadRequest},
	sourcetest.Truncated:    {Do: testenv.Cut, After: 100},
	repoNoIndex:             {Status: http.StatusOK, Body: "entries: [1, 2"},
	repoWebPage:             {Status: http.StatusOK, Header: http.Header{"Content-Type": {"text/html"}}, Body: "<!DOCTYPE html><html><body>charts</body></html>"},
	repoUnasked:             {Status: http.StatusNotModified},
	repoBusy:                {Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"7200"}}},
	sourcetest.StallResolve: {Do: testenv.Stall, After: -1},
	sourcetest.StallFetch:   {Do: testenv.Stall, After: 100},
}

func (u *repoUpstream) Publish(tree fstest.MapFS) error {
	entries := map[string]any{}
	for i, name := range slices.Sorted(maps.Keys(tree)) {
		chart := fmt.Sprintf("file-%04d", i)
		entries[chart] = []any{map[string]any{
			"name": chart, "version": "1.0.0", "urls": []string{chart + ".tgz"},
			"annotations": map[string]string{"path": name, "mode": fmt.Sprintf("%o", tree[name].Mode), "data": base64.StdEncoding.EncodeToString(tree[name].Data)},
		}}
	}
	text, err := yaml.Marshal(map[string]any{"apiVersion": "v1", "entries": entries, "generated": "2026-01-01T00:00:00Z"})
	if err == nil && u.variant.config.JSON {
		text, err = yaml.YAMLToJSON(text)
	}
	u.s.SetIndex(text)
	return err
}

// repoRead returns the files that an index was made of.
func repoRead(r io.Reader) (fs.FS, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	var index struct {
		Entries map[string][]struct{ Annotations map[string]string }
	}
	if err := yaml.Unmarshal(text, &index); err != nil {
		return nil, err
	}
	tree := fstest.MapFS{}
	for _, versions := range index.Entries {
		a := versions[0].Annotations
		data, err := base64.StdEncoding.DecodeString(a["data"])
		if err != nil {
			return nil, err
		}
		var mode fs.FileMode
		fmt.Sscanf(a["mode"], "%o", &mode)
		tree[a["path"]] = &fstest.MapFile{Data: data, Mode: mode}
	}
	return tree, nil
}

func (u *repoUpstream) Break(d sourcetest.Defect) <-chan struct{} {
	u.defect = d
	return u.s.Break(repoBroken[d])
}

func (u *repoUpstream) Object() source.Object {
	p := repoObject(u.s)
	p.Spec.SecretRef = &source.LocalReference{Name: "login"}
	if u.variant.tls {
		p.Spec.CertSecretRef = &source.LocalReference{Name: "tls"}
	}
	if u.variant.spec != nil {
		u.variant.spec(&p.Spec)
	}
	switch u.defect {
	case sourcetest.Invalid:
		p.Spec.URL = "https:///charts"
	case repoRegistry:
		p.Spec.URL = "oci://" + u.s.Host + "/charts"
	case sourcetest.NoSecret:
		p.Spec.SecretRef = &source.LocalReference{Name: "absent"}
	case repoWrongPassword:
		p.Spec.SecretRef = &source.LocalReference{Name: "wrong"}
	case repoHalfSecret:
		p.Spec.SecretRef = &source.LocalReference{Name: "half"}
	case repoBadTLS:
		p.Spec.CertSecretRef = &source.LocalReference{Name: "broken"}
	}
	return p
}

func (u *repoUpstream) Origin(obj source.Object) source.Origin {
	return chart.NewRepository(obj.(*source.PkgRepository), source.Env{Secrets: u.secrets})
}

func (u *repoUpstream) Traffic() sourcetest.Traffic {
	return sourcetest.Traffic{Requests: u.s.Count(), Content: u.s.ContentBytes()}
}

func (u *repoUpstream) Secrets() []string { return repoSecretForms }

// repoVariants are the combinations that run the whole suite.
var repoVariants = map[string]repoVariant{
	"yaml": {},
	"json, gzip, weak ETag, basic over mutual TLS": {
		tls:    true,
		config: testenv.ChartsConfig{JSON: true, Gzip: true, Weak: true, NoDate: true, Mutual: true, Username: "user", Password: repoCanary},
		kind: func(k *sourcetest.Kind) {
			k.Only(sourcetest.Denied, sourcetest.NoSecret, sourcetest.Leaking, repoNoIndex)
			k.Failures = append(k.Failures, sourcetest.Fails(repoWrongPassword, "AuthenticationFailed", "401"))
		},
	},
	"password in the URL, no ETag, deprecated keys": {
		tls:    true,
		config: testenv.ChartsConfig{NoETag: true, Username: "user", Password: repoCanary},
		spec: func(s *source.PkgRepositorySpec) {
			s.URL = strings.Replace(s.URL, "://", "://user:"+url.PathEscape(repoCanary)+"@", 1)
			s.SecretRef, s.CertSecretRef = &source.LocalReference{Name: "deprecated"}, nil
		},
		kind: func(k *sourcetest.Kind) {
			k.Only(sourcetest.Denied, sourcetest.NoSecret, sourcetest.Leaking, sourcetest.Gone, repoWebPage)
		},
	},
	"no validators at all": {
		config: testenv.ChartsConfig{NoETag: true, NoDate: true},
		kind: func(k *sourcetest.Kind) {
			k.Only(sourcetest.Gone)
			k.Failures = append(k.Failures, sourcetest.Fails(repoUnasked, "Failed", "304 Not Modified: the server answers as if"))
		},
	},
}

func TestRepositoryConformance(t *testing.T) {
	for name, v := range repoVariants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind := repoKind(func(sourcetest.TB) sourcetest.Upstream { return newRepoUpstream(t, v) })
			if v.kind != nil {
				v.kind(&kind)
			}
			sourcetest.Run(t, kind)
		})
	}
}

func newRepoUpstream(t *testing.T, v repoVariant) *repoUpstream {
	c := v.config
	if v.tls {
		c.CA = testenv.NewCA(t)
	}
	return &repoUpstream{s: testenv.StartCharts(t, c), variant: v, secrets: newRepoSecrets(c.CA)}
}

// newRepoSecrets returns the Secrets that objects may name.
func newRepoSecrets(ca *testenv.CA) sourcetest.Secrets {
	k := sourcetest.Secrets{
		"default/login": sourcetest.Secret("username", "user", "password", repoCanary), "default/wrong": sourcetest.Secret("username", "user", "password", "other-"+repoCanary),
		"default/half": sourcetest.Secret("username", "user"), "default/broken": sourcetest.Secret("ca.crt", repoCanary),
	}
	if ca != nil {
		cert, key := ca.Client("user")
		k["default/tls"] = sourcetest.Secret("ca.crt", string(ca.PEM()), "tls.crt", string(cert), "tls.key", string(key))
		k["default/deprecated"] = sourcetest.Secret("caFile", string(ca.PEM()), "certFile", string(cert), "keyFile", string(key))
	}
	return k
}

// repoKind describes a PkgRepository.
func repoKind(open func(sourcetest.TB) sourcetest.Upstream) sourcetest.Kind {
	stalled := func(d sourcetest.Defect, message string) sourcetest.Failure {
		return sourcetest.Failure{Defect: d, Outcome: source.Stalled, Condition: "FetchFailed", Reason: "URLInvalid", Message: message}
	}
	return sourcetest.Kind{
		Name: "PkgRepository",
		Open: open,
		Read: repoRead,
		Failures: []sourcetest.Failure{
			sourcetest.Fails(sourcetest.Gone, "Failed", "404 Not Found: spec.url must be the URL of the directory that index.yaml is in"),
			sourcetest.Fails(sourcetest.Denied, "AuthenticationFailed", "403"),
			sourcetest.Fails(sourcetest.NoSecret, "AuthenticationFailed", "default/absent"),
			sourcetest.Fails(sourcetest.Leaking, "Failed", "400"),
			sourcetest.Fails(sourcetest.Truncated, "Failed", "receive index, after 100 bytes"),
			sourcetest.Fails(repoNoIndex, "IndexationFailed", "index.yaml: "),
			sourcetest.Fails(repoWebPage, "IndexationFailed", "the answer is a web page"),
			sourcetest.Fails(repoBusy, "Failed", "try again in 2h0m0s"),
			sourcetest.Fails(repoHalfSecret, "AuthenticationFailed", "secret default/half: key password is missing"),
			sourcetest.Fails(repoBadTLS, "AuthenticationFailed", "secret default/broken: key ca.crt is not PEM"),
			stalled(sourcetest.Invalid, "spec.url"),
			stalled(repoRegistry, "set spec.type: oci"),
		},
		Stalls:       []sourcetest.Defect{sourcetest.StallResolve, sourcetest.StallFetch},
		ReadsContent: true,
	}
}
