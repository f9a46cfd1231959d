package source_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// base has a minimal spec of each kind.
var base = map[string]string{
	"GitRepository":    `url: "https://h/x", interval: 1m`,
	"Bucket":           `bucketName: b, endpoint: h, interval: 1m`,
	"OCIRepository":    `url: "oci://h/x", interval: 1m`,
	"PkgRepository":    `url: "https://h/x"`,
	"PkgChart":         `chart: x, interval: 1m, sourceRef: {kind: PkgRepository, name: a}`,
	"ExternalArtifact": ``,
}

// TestAdmission merges fields into a minimal object and checks the only defect, or that there is
// none.
func TestAdmission(t *testing.T) {
	long := strings.Repeat("a", 254)
	tests := []struct{ kind, fields, field, want string }{
		{"GitRepository", `url: "ftp://h/x"`, "spec.url", "must begin with http://"},
		{"GitRepository", `url: "HTTPS://h/x"`, "spec.url", "must begin with"},
		{"GitRepository", `url: ""`, "spec.url", "is required"},
		{"GitRepository", `url: "git@h:x/y"`, "spec.url", "ssh://git@HOST/PATH"},
		{"GitRepository", `url: "ssh://git@h:org/y"`, "spec.url", "separate host and path with '/'"},
		{"GitRepository", `url: "https://h/x\ny"`, "spec.url", "control characters"},
		{"GitRepository", `url: "https:///x"`, "spec.url", "must name a host"},
		{"GitRepository", `url: "https://h/%zz"`, "spec.url", "is no URL"},
		{"GitRepository", `url: "ssh://git@h:22/x"`, "", ""},
		{"GitRepository", `url: null`, "spec.url", "is required"},
		{"GitRepository", `interval: null`, "spec.interval", "is required"},
		{"GitRepository", `interval: 60`, "spec.interval", "must be a string, not a number"},
		{"GitRepository", `interval: 1.5h`, "", ""},
		{"GitRepository", `timeout: 90m`, "", ""},
		{"GitRepository", `provider: gcp`, "spec.provider", `must be one of generic, azure, github, aws, not "gcp"`},
		{"GitRepository", `provider: github`, "", ""},
		{"GitRepository", `serviceAccountName: sa`, "spec.serviceAccountName", `requires provider azure or aws, not "generic"`},
		{"GitRepository", `serviceAccountName: sa, provider: aws`, "", ""},
		{"GitRepository", `serviceAccountName: S_A, provider: aws`, "spec.serviceAccountName", "is no name"},
		{"GitRepository", `secretRef: {name: ""}`, "spec.secretRef.name", "is required"},
		{"GitRepository", `secretRef: {name: ../x}`, "spec.secretRef.name", "is no name"},
		{"GitRepository", `secretRef: {name: ` + long + `}`, "spec.secretRef.name", "at most 253"},
		{"GitRepository", `proxySecretRef: {}`, "spec.proxySecretRef.name", "is required"},
		{"GitRepository", `verify: {mode: Commit, secretRef: {name: a}}`, "spec.verify.mode", "must be one of HEAD, head, Tag, TagAndHEAD"},
		{"GitRepository", `verify: {mode: HEAD}`, "spec.verify.secretRef", "is required"},
		{"GitRepository", `verify: {secretRef: {name: A}}`, "spec.verify.secretRef.name", "is no name"},
		{"GitRepository", `verify: {mode: head, secretRef: {name: a}}`, "", ""},
		{"GitRepository", `ref: {branch: "a b"}`, "spec.ref.branch", "no name that git allows after refs/heads/"},
		{"GitRepository", `ref: {branch: -x}`, "spec.ref.branch", "no name that git allows"},
		{"GitRepository", `ref: {branch: feature/x}`, "", ""},
		{"GitRepository", `ref: {tag: v1.lock}`, "spec.ref.tag", "refs/tags/"},
		{"GitRepository", `ref: {tag: ""}`, "", ""},
		{"GitRepository", `ref: {name: /refs/heads/x}`, "spec.ref.name", "is no git ref name"},
		{"GitRepository", `ref: {name: "refs/heads/@{1}"}`, "spec.ref.name", "is no git ref name"},
		{"GitRepository", `ref: {name: "refs/tags/v1^{}"}`, "", ""},
		{"GitRepository", `ref: {name: refs/pull/1/head}`, "", ""},
		{"GitRepository", `ref: {commit: ` + strings.Repeat("A", 64) + `}`, "", ""},
		{"GitRepository", `include: [{repository: {name: ""}}]`, "spec.include[0].repository.name", "is required"},
		{"GitRepository", `include: [{repository: {name: a}, fromPath: ".."}]`, "spec.include[0].fromPath", "must not lead out"},
		{"GitRepository", `include: [{repository: {name: a}, toPath: 'a\b'}]`, "spec.include[0].toPath", "must use '/'"},
		{"GitRepository", `include: [{repository: {name: a}, toPath: "a\0b"}]`, "spec.include[0].toPath", "control characters"},
		{"GitRepository", `include: [{repository: {name: a}, fromPath: /x, toPath: ./a/../b}]`, "", ""},
		{"GitRepository", `sparseCheckout: [./a, ../b]`, "spec.sparseCheckout[1]", "must not lead out"},

		{"GitRepository", `submoduleCredentials: [{url: "https://h", secretRef: {name: a}}, {url: "https://h:8443/", secretRef: {name: a}}, {url: "ssh://h", secretRef: {name: b}}]`, "", ""},
		{"GitRepository", `submoduleCredentials: [{url: "file:///x", secretRef: {name: a}}]`, "spec.submoduleCredentials[0].url", "must begin with http://"},
		{"GitRepository", `submoduleCredentials: [{url: "https://h/org", secretRef: {name: a}}]`, "spec.submoduleCredentials[0].url", "and no more"},
		{"GitRepository", `submoduleCredentials: [{url: "https://user:canary@h", secretRef: {name: a}}]`, "spec.submoduleCredentials[0].url", "and no more"},
		{"GitRepository", `submoduleCredentials: [{url: "https://h?x", secretRef: {name: a}}]`, "spec.submoduleCredentials[0].url", "and no more"},
		{"GitRepository", `submoduleCredentials: [{url: "https://h"}]`, "spec.submoduleCredentials[0].secretRef", "is required"},
		{"GitRepository", `submoduleCredentials: [{url: "https://h", secretRef: {name: A}}]`, "spec.submoduleCredentials[0].secretRef.name", "is no name"},
		{"GitRepository", `submoduleCredentials: [{url: "https://h", secretRef: {name: a}}, {url: "https://H:443", secretRef: {name: b}}]`, "spec.submoduleCredentials", "entry 1 repeats"},

		{"Bucket", `bucketName: ""`, "spec.bucketName", "is required"},
		{"Bucket", `bucketName: null`, "spec.bucketName", "is required"},
		{"Bucket", `endpoint: null`, "spec.endpoint", "is required"},
		{"Bucket", `endpoint: "h\r\nx: y"`, "spec.endpoint", "control characters"},
		{"Bucket", `endpoint: "minio.lab:9000"`, "", ""},
		{"Bucket", `endpoint: "[fd00::1]:9000"`, "", ""},
		{"Bucket", `endpoint: "s3.amazonaws.com/", provider: aws`, "", ""},
		{"Bucket", `endpoint: "https://h"`, "spec.endpoint", "has a scheme: write HOST[:PORT] alone"},
		{"Bucket", `endpoint: "http://h", insecure: true`, "spec.endpoint", "has a scheme"},
		{"Bucket", `endpoint: "h/b"`, "spec.endpoint", "has a path"},
		{"Bucket", `endpoint: "h?sig=canary"`, "spec.endpoint", "has a query"},
		{"Bucket", `endpoint: "h#canary"`, "spec.endpoint", "has a fragment"},
		{"Bucket", `endpoint: "h#"`, "spec.endpoint", "has a fragment"},
		{"Bucket", `endpoint: "canary:canary@h"`, "spec.endpoint", "credentials belong into secretRef"},
		{"Bucket", `endpoint: "h:0"`, "spec.endpoint", "names no host"},
		{"Bucket", `endpoint: "h:65536"`, "spec.endpoint", "names no host"},
		{"Bucket", `endpoint: "h:"`, "spec.endpoint", "names no host"},
		{"Bucket", `endpoint: "h:x"`, "spec.endpoint", "cannot be parsed"},
		{"Bucket", `endpoint: "h,i"`, "spec.endpoint", "names no host"},
		{"Bucket", `endpoint: "[fe80::1%25eth0]:1"`, "spec.endpoint", "names no host"},
		{"Bucket", `endpoint: ` + strings.Repeat("a", 8193), "spec.endpoint", "has 8193 bytes"},
		{"Bucket", `provider: gcp, endpoint: storage.googleapis.com`, "", ""},
		{"Bucket", `provider: gcp, endpoint: "https://storage.googleapis.com/"`, "", ""},
		{"Bucket", `provider: gcp, endpoint: "http://h:4443/storage/v1/", insecure: true`, "", ""},
		{"Bucket", `provider: gcp, endpoint: "http://h:4443"`, "spec.endpoint", "is http: use https, or set spec.insecure"},
		{"Bucket", `provider: gcp, endpoint: "https://h?a=canary"`, "spec.endpoint", "has a query"},
		{"Bucket", `provider: azure, endpoint: "ftp://h"`, "spec.endpoint", "another scheme than http or https"},
		{"Bucket", `provider: azure, endpoint: "http://h?sig=canary"`, "spec.endpoint", "is http"},
		{"Bucket", `provider: azure, endpoint: "https://h/%zz?sig=canary"`, "spec.endpoint", "cannot be parsed"},
		{"Bucket", `provider: azure, endpoint: "https://a.blob.core.windows.net/?sv=1&sig=canary"`, "", ""},
		{"Bucket", `provider: azure, endpoint: "http://127.0.0.1:10000/devstoreaccount1", insecure: true`, "", ""},
		{"Bucket", `interval: null`, "spec.interval", "is required"},
		{"Bucket", `provider: minio`, "spec.provider", "must be one of generic, aws, gcp, azure"},
		{"Bucket", `serviceAccountName: sa`, "spec.serviceAccountName", "requires provider aws or gcp or azure"},
		{"Bucket", `serviceAccountName: sa, provider: gcp`, "", ""},
		{"Bucket", `serviceAccountName: sa, provider: gcp, secretRef: {name: a}`, "spec.serviceAccountName", "excludes secretRef"},
		{"Bucket", `sts: {provider: ldap, endpoint: "https://h"}, provider: gcp`, "spec.sts", "requires provider aws or generic"},
		{"Bucket", `sts: {provider: ldap, endpoint: "https://h"}, provider: aws`, "spec.sts.provider", `must be aws or webidentity with spec.provider aws, not "ldap"`},
		{"Bucket", `sts: {provider: aws, endpoint: "https://h"}`, "spec.sts.provider", `must be ldap or webidentity with spec.provider generic, not "aws"`},
		{"Bucket", `sts: {endpoint: "https://h"}`, "spec.sts.provider", "is required"},
		{"Bucket", `sts: {provider: ldap}`, "spec.sts.endpoint", "is required"},
		{"Bucket", `sts: {provider: ldap, endpoint: "ldap://h"}`, "spec.sts.endpoint", "must begin with http:// or https://"},
		{"Bucket", `sts: {provider: aws, endpoint: "https://h", secretRef: {name: a}}, provider: aws`, "spec.sts.secretRef", `requires provider ldap or webidentity, not "aws"`},
		{"Bucket", `sts: {provider: aws, endpoint: "https://h", certSecretRef: {name: a}}, provider: aws`, "spec.sts.certSecretRef", `requires provider ldap or webidentity, not "aws"`},
		{"Bucket", `sts: {provider: ldap, endpoint: "https://h", certSecretRef: {name: A}}`, "spec.sts.certSecretRef.name", "is no name"},
		{"Bucket", `sts: {provider: ldap, endpoint: "https://h", secretRef: {name: a}, certSecretRef: {name: a}}`, "", ""},
		{"Bucket", `sts: {provider: webidentity, endpoint: "https://h", secretRef: {name: a}, certSecretRef: {name: a}}`, "", ""},
		{"Bucket", `sts: {provider: webidentity, endpoint: "https://h", secretRef: {name: a}}, provider: aws`, "", ""},
		{"Bucket", `sts: {provider: webidentity, endpoint: "https://h"}`, "spec.sts.secretRef", "a Secret with token"},
		{"Bucket", `sts: {provider: ldap, endpoint: "https://canary:canary@h"}`, "spec.sts.endpoint", "has user information"},
		{"Bucket", `sts: {provider: ldap, endpoint: "https://h/?a=canary"}`, "spec.sts.endpoint", "has a query"},
		{"Bucket", `bucketName: a/b`, "spec.bucketName", "goes into spec.prefix"},
		{"Bucket", `bucketName: 'a\b'`, "spec.bucketName", "goes into spec.prefix"},
		{"Bucket", `bucketName: "a?b"`, "spec.bucketName", "the name of a bucket alone"},
		{"Bucket", `bucketName: ..`, "spec.bucketName", "the name of a bucket alone"},
		{"Bucket", `bucketName: "$web", provider: azure, endpoint: "https://a.blob.core.windows.net"`, "", ""},
		{"Bucket", `certSecretRef: {name: ""}`, "spec.certSecretRef.name", "is required"},

		{"OCIRepository", `url: "https://h/x"`, "spec.url", "must begin with oci://"},
		{"OCIRepository", `url: "oci://h:5000/x:v1"`, "spec.url", "must not hold a tag or digest"},
		{"OCIRepository", `url: "oci://h/x@sha256:00"`, "spec.url", "must not hold a tag or digest"},
		{"OCIRepository", `url: "oci://h:5000/x"`, "", ""},
		{"OCIRepository", `provider: github`, "spec.provider", "must be one of generic, aws, azure, gcp"},
		{"OCIRepository", `ref: {digest: "sha256:12"}`, "spec.ref.digest", "64 hexadecimal digits"},
		{"OCIRepository", `ref: {semver: "1.x.y.z"}`, "spec.ref.semver", "is no version range"},
		{"OCIRepository", `ref: {semver: 1.x, semverFilter: "("}`, "spec.ref.semverFilter", "must be a regular expression"},
		{"OCIRepository", `ref: {tag: "a/b"}`, "spec.ref.tag", "be a tag"},
		{"OCIRepository", `layerSelector: {operation: untar}`, "spec.layerSelector.operation", "must be one of extract, copy"},
		{"OCIRepository", `verify: {provider: gpg}`, "spec.verify.provider", "must be one of cosign, notation"},
		{"OCIRepository", `verify: {matchOIDCIdentity: [{issuer: "[", subject: x}]}`, "spec.verify.matchOIDCIdentity[0].issuer", "must be a regular expression"},
		{"OCIRepository", `verify: {matchOIDCIdentity: [{issuer: x, subject: "*"}]}`, "spec.verify.matchOIDCIdentity[0].subject", "must be a regular expression"},
		{"OCIRepository", `verify: {secretRef: {name: k}, trustedRootSecretRef: {name: ""}}`, "spec.verify.trustedRootSecretRef.name", "is required"},
		{"OCIRepository", `verify: {provider: cosign}`, "spec.verify.matchOIDCIdentity", "is required without secretRef"},
		{"OCIRepository", `verify: {}`, "spec.verify.matchOIDCIdentity", "is required without secretRef"},
		{"OCIRepository", `verify: {matchOIDCIdentity: [{issuer: ".*", subject: ".*"}]}`, "", ""},
		{"OCIRepository", `verify: {provider: notation}`, "spec.verify.secretRef", "is required with provider notation"},
		{"OCIRepository", `verify: {provider: notation, secretRef: {name: a}}`, "", ""},
		{"OCIRepository", `verify: {provider: notation, secretRef: {name: a}, matchOIDCIdentity: [{issuer: a, subject: b}]}`, "spec.verify.matchOIDCIdentity", "requires provider cosign"},
		{"OCIRepository", `verify: {provider: notation, secretRef: {name: a}, trustedRootSecretRef: {name: a}}`, "spec.verify.trustedRootSecretRef", "requires provider cosign"},
		{"OCIRepository", `serviceAccountName: A`, "spec.serviceAccountName", "is no name"},

		{"PkgRepository", `url: "ssh://h/x"`, "spec.url", "must begin with http:// or https:// or oci://"},
		{"PkgRepository", `url: "https://h/x", type: oci`, "spec.url", "must begin with oci://"},
		{"PkgRepository", `type: git`, "spec.type", "must be one of default, oci"},
		{"PkgRepository", `verify: {secretRef: {name: a}}`, "", ""},
		{"PkgRepository", `verify: {}`, "spec.verify.secretRef", "is required"},
		{"PkgRepository", `provider: github`, "spec.provider", "must be one of"},
		{"PkgRepository", `accessFrom: {namespaceSelectors: [{matchLabels: {a: 1}}]}`, "spec.accessFrom.namespaceSelectors[0].matchLabels[a]", "must be a string"},
		{"PkgRepository", `accessFrom: {}`, "spec.accessFrom.namespaceSelectors", "is required"},

		{"PkgChart", `chart: ""`, "spec.chart", "is required"},
		{"PkgChart", `version: latest`, "spec.version", "is no version range"},
		{"PkgChart", `version: latest, sourceRef: {kind: Bucket, name: a}`, "", ""},
		{"PkgChart", `sourceRef: {kind: ExternalArtifact, name: a}`, "spec.sourceRef.kind", "must be one of PkgRepository"},
		{"PkgChart", `sourceRef: {kind: OCIRepository, name: a}`, "", ""},
		{"PkgChart", `sourceRef: {name: a}`, "spec.sourceRef.kind", "is required"},
		{"PkgChart", `sourceRef: {kind: Bucket}`, "spec.sourceRef.name", "is required"},
		{"PkgChart", `sourceRef: {kind: Bucket, name: a, namespace: b}`, "spec.sourceRef.namespace", "unknown field"},
		{"PkgChart", `reconcileStrategy: Always`, "spec.reconcileStrategy", "must be one of ChartVersion, Revision"},
		{"PkgChart", `sourceRef: {kind: Bucket, name: a}, verify: {provider: cosign}`, "spec.verify", "kind PkgRepository"},
		{"PkgChart", `sourceRef: {kind: HelmRepository, name: a}, verify: {}`, "spec.verify.matchOIDCIdentity", "a signature of anybody would do"},
		{"PkgChart", `sourceRef: {kind: HelmRepository, name: a}, verify: {secretRef: {name: a}}`, "", ""},
		{"PkgChart", `version: latest, sourceRef: {kind: OCIRepository, name: a}`, "", ""},
		{"PkgChart", `chart: ../x, sourceRef: {kind: Bucket, name: a}`, "spec.chart", "must not lead out of the source"},
		{"PkgChart", `chart: /a/../x, sourceRef: {kind: Bucket, name: a}`, "", ""},
		{"PkgChart", `sourceRef: {kind: PkgChart, name: a}`, "spec.sourceRef.kind", "must be one of PkgRepository, GitRepository, Bucket, OCIRepository, HelmRepository"},
		{"PkgChart", `valuesFiles: [a, ../../b]`, "spec.valuesFiles[1]", "must not lead out"},
		{"PkgChart", `valuesFiles: [a, ./b/../c.yaml, "source:app/a.yaml", "source:Bucket/app/sub/a.yaml", "source:ExternalArtifact/x/a"]`, "", ""},
		{"PkgChart", `valuesFiles: [a, /values/b.yaml]`, "", ""},
		{"PkgChart", `valuesFiles: [a, /../../etc/passwd]`, "spec.valuesFiles[1]", "must not lead out"},
		{"PkgChart", `valuesFiles: ["source:app//b.yaml"]`, "spec.valuesFiles[0]", "must be source:NAME/PATH"},
		{"PkgChart", `valuesFiles: ["source:app/../b.yaml"]`, "spec.valuesFiles[0]", "must not lead out"},
		{"PkgChart", `valuesFiles: ["source:Bucket/app/a/../../b.yaml"]`, "spec.valuesFiles[0]", "must not lead out"},
		{"PkgChart", `valuesFiles: ["source:app"]`, "spec.valuesFiles[0]", "must be source:NAME/PATH"},
		{"PkgChart", `valuesFiles: ["source:app/."]`, "spec.valuesFiles[0]", "must be source:NAME/PATH"},
		{"PkgChart", `valuesFiles: ["source:Bucket/app"]`, "spec.valuesFiles[0]", "must be source:NAME/PATH"},
		{"PkgChart", `valuesFiles: ["source:"]`, "spec.valuesFiles[0]", "must be source:NAME/PATH"},
		{"PkgChart", `valuesFiles: ["source:../a"]`, "spec.valuesFiles[0]", "names a source of which \"..\" is no name"},
		{"PkgChart", `valuesFiles: ["source:Secret/app/a"]`, "spec.valuesFiles[0]", "names a source of kind \"Secret\""},
		{"PkgChart", `valuesFiles: ["source:PkgChart/app/a"]`, "spec.valuesFiles[0]", "values come from GitRepository"},
		{"PkgRepository", `url: "oci://h/x", type: oci, verify: {secretRef: {name: a}}`, "spec.verify", "requires an index"},
		{"PkgRepository", `verify: {secretRef: {name: A}}`, "spec.verify.secretRef.name", "is no name"},

		{"ExternalArtifact", `sourceRef: {name: a}`, "spec.sourceRef.kind", "is required"},
		{"ExternalArtifact", `sourceRef: {kind: A, name: ""}`, "spec.sourceRef.name", "is required"},
	}
	for _, test := range tests {
		doc := fmt.Sprintf("apiVersion: source.headgate.dev/v1\nkind: %s\nmetadata: {name: x}\nspec: {<<: {%s}, %s}\n",
			test.kind, base[test.kind], test.fields)
		var s source.Set
		errs := split(s.Decode("t.yaml", strings.NewReader(doc)))
		switch {
		case test.want == "" && len(errs) == 0:
			if err := source.Validate(s.Objects[0]); err != nil {
				t.Errorf("%s {%s}: %v", test.kind, test.fields, err)
			}
		case test.want == "" || len(errs) != 1:
			t.Errorf("%s {%s}: %v", test.kind, test.fields, errs)
		default:
			var at *source.DocumentError
			if strings.Contains(errs[0].Error(), "canary") {
				t.Errorf("%s {%s}: %v shows a secret", test.kind, test.fields, errs[0])
			}
			if !errors.As(errs[0], &at) || at.Field != test.field || !strings.Contains(at.Err.Error(), test.want) {
				t.Errorf("%s {%s}: %v, want %s: %s", test.kind, test.fields, errs[0], test.field, test.want)
			}
		}
	}
}

// TestValidateGo checks objects that were made in Go.
func TestValidateGo(t *testing.T) {
	g := &source.GitRepository{
		Header: source.Header{Metadata: source.Metadata{Name: "x"}},
		Spec:   source.GitRepositorySpec{URL: "https://h/x"},
	}
	source.Default(g)
	if err := source.Validate(g); err != nil {
		t.Error(err)
	}
	if g.APIVersion != "source.headgate.dev/v1" || g.Kind != "GitRepository" || g.Metadata.Namespace != "default" {
		t.Errorf("%+v", g.Header)
	}
	g.Spec.Interval, g.Spec.Timeout = -1, -1
	testenv.Equal(t, len(split(source.Validate(g))), 2, "negative durations")
	for _, obj := range []source.Object{
		&source.Bucket{Spec: source.BucketSpec{Timeout: -1}}, &source.OCIRepository{Spec: source.OCIRepositorySpec{Interval: -1}},
		&source.PkgRepository{Spec: source.PkgRepositorySpec{Interval: -1}}, &source.PkgChart{Spec: source.PkgChartSpec{Interval: -1}},
	} {
		testenv.ErrorSays(t, source.Validate(obj), "must not be negative", obj)
	}
	c := &source.PkgChart{Spec: source.PkgChartSpec{
		SourceRef: source.LocalChartSourceReference{Kind: "HelmRepository"},
		Verify:    &source.OCIRepositoryVerification{TrustedRootSecretRef: &source.LocalReference{Name: "a"}},
	}}
	c.Kind = "HelmChart"
	source.Default(c)
	if c.Kind != "PkgChart" || c.Spec.SourceRef.Kind != "PkgRepository" {
		t.Errorf("%s of %s", c.Kind, c.Spec.SourceRef.Kind)
	}
	testenv.ErrorSays(t, source.Validate(c), "trustedRootSecretRef: does not exist")
	g.Metadata.Annotations = map[string]string{"a": strings.Repeat("x", 256<<10)}
	testenv.ErrorSays(t, source.Validate(g), "metadata.annotations: must hold at most 256 KiB")
	testenv.Equal(t, len(source.Warnings(&source.ExternalArtifact{})), 0)
}

// TestRefNames has names that git check-ref-format refuses, and some that it accepts.
func TestRefNames(t *testing.T) {
	for name, valid := range map[string]bool{
		"refs/heads/main": true, "HEAD": true, "refs/tags/v1.0": true, "refs/heads/@": true, "refs/heads/ü": true,
		"": true, "@": false, "/a": false, "a/": false, "a//b": false, ".a": false, "a/.b": false, "a..b": false, "a.": false,
		"a.lock": false, "a.lock/b": false, "a b": false, "a~b": false, "a^b": false, "a:b": false, "a?b": false, "a*b": false,
		"a[b": false, `a\b`: false, "a\x7f": false, "a\tb": false, "a@{b": false, "^{}": false, "refs/tags/v1^{}^{}": false,
	} {
		g := &source.GitRepository{Spec: source.GitRepositorySpec{URL: "https://h", Ref: &source.GitRepositoryRef{Name: name}}}
		g.Metadata.Name = "x"
		if err := source.Validate(g); (err == nil) != valid {
			t.Errorf("%q: %v", name, err)
		}
	}
}
