package source

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/internal/document"
)

// Facts returns the properties of the fields of a kind beyond their Go types: defaults, versions,
// and requirements on their values. Package source/schema generates schemas from them.
func Facts(kind string) []document.Fact {
	return slices.Concat(append(slices.Clone(tables[kind]), metadataFacts)...)
}

// tables has the facts of each kind; they never change. A later requirement on a field is only
// checked if the earlier ones are satisfied. A fact in a later table counts only if no earlier
// table has a fact for the field or for a field around it.
var tables = map[string][][]document.Fact{
	"GitRepository":    {gitFacts, artifactFacts},
	"Bucket":           {bucketFacts, artifactFacts},
	"OCIRepository":    {ociFacts, verifyFacts, artifactFacts},
	"PkgRepository":    {repositoryFacts, artifactFacts},
	"PkgChart":         {chartFacts, verifyFacts, artifactFacts},
	"ExternalArtifact": {externalFacts, artifactFacts},

	"ArtifactGenerator": {generatorFacts},
}

// noVersion is the version of a field that a shared Go type has, but a kind does not have.
const noVersion = "none"

const (
	accessNote   = "is deprecated and has no effect: no implementation honours it; remove it"
	configNote   = "is deprecated: the observed* fields replace it"
	checksumNote = "is deprecated: digest replaces it"
)

var (
	textShape = reflect.TypeFor[string]()

	interval = document.Fact{At: "spec.interval", Must: musts{unsigned}}
	timeout  = document.Fact{At: "spec.timeout", Default: defaultTimeout, Text: checkTimeout, Must: musts{unsigned, {Schema: keywords{"pattern": withoutHours}}}}

	accessFrom     = document.Fact{At: "spec.accessFrom", Only: V1Beta2, Shape: reflect.TypeFor[AccessFrom](), Warning: accessNote}
	configChecksum = document.Fact{At: "status.contentConfigChecksum", Only: V1Beta2, Shape: textShape, Warning: configNote}
)

// artifactFacts are about the artifact, which every kind has.
var artifactFacts = []document.Fact{
	{At: "status.artifact.digest", Must: musts{digest}},
	{At: "status.artifact.revision", Optional: V1Beta2},
	{At: "status.artifact.checksum", Only: V1Beta2, Shape: textShape, Warning: checksumNote},
}

var gitFacts = slices.Concat([]document.Fact{
	{At: "spec.url", Must: address("http", "https", "ssh")},
	{At: "spec.provider", Only: V1, Default: "generic", Must: musts{oneOf("generic", "azure", "github", "aws")}},
	{At: "spec.serviceAccountName", Only: V1, Must: musts{only("spec.provider", "azure", "aws"), optionalName}},
	{At: "spec.proxySecretRef", Only: V1},
	interval, timeout,
	{At: "spec.ref.branch", Must: musts{refPart("refs/heads/")}},
	{At: "spec.ref.tag", Must: musts{refPart("refs/tags/")}},
	{At: "spec.ref.semver", Must: musts{versionRange}},
	{At: "spec.ref.name", Must: musts{refName}},
	{At: "spec.ref.commit", Must: musts{form(`^([0-9a-fA-F]{40}|[0-9a-fA-F]{64})$`, "be the full id of a commit: 40 or 64 hexadecimal digits")}},
	{At: "spec.verify.mode", Default: VerifyHEAD, Must: musts{oneOf(VerifyHEAD, VerifyHead, VerifyTag, VerifyTagAndHEAD)}},
	{At: "spec.include[].repository.kind", Must: musts{withAlternative(oneOf("GitRepository", "Bucket", "OCIRepository", "PkgChart", "ExternalArtifact"), "HelmChart")}},
	{At: "spec.include[].fromPath", Must: inside},
	{At: "spec.include[].toPath", Must: inside},
	{At: "spec.sparseCheckout", Only: V1},
	{At: "spec.sparseCheckout[]", Must: musts{withSchema(keywords{"minLength": 1, "pattern": printablePattern, "not": keywords{"pattern": `^/|\\|(^|/)\.\.(/|$)`}}, checkSparse)}},
	{At: "spec.lfs", Only: V1},
	{At: "spec.submoduleCredentials", Only: V1, Must: musts{goOnly(distinctOrigins)}},
	{At: "spec.submoduleCredentials[].url", Must: append(address("http", "https", "ssh"), bareOrigin)},
	{At: "spec.gitImplementation", Only: V1Beta2, Shape: textShape, Text: checkImplementation, Must: musts{{Schema: keywords{"enum": []string{"go-git", "libgit2"}}}},
		Warning: "is deprecated and has no effect: there is one implementation; remove it"},
	accessFrom,

	{At: "status.observedLFS", Only: V1},
	{At: "status.observedSparseCheckout", Only: V1},
	{At: "status.sourceVerificationMode", Only: V1},
	{At: "status.url", Only: V1Beta2},
	{At: "status.includedArtifacts[].digest", Must: musts{digest}},
	{At: "status.includedArtifacts[].revision", Optional: V1Beta2},
	{At: "status.includedArtifacts[].checksum", Only: V1Beta2, Shape: textShape, Warning: checksumNote},
	configChecksum,
}, references("spec.verify.secretRef", "spec.include[].repository", "spec.submoduleCredentials[].secretRef", "spec.secretRef", "spec.proxySecretRef"))

var bucketFacts = slices.Concat([]document.Fact{
	{At: "spec.provider", Default: "generic", Must: musts{oneOf("generic", "aws", "gcp", "azure")}},
	{At: "spec.bucketName", Must: musts{filled, without(`[/\\?#%]|^\.\.?$`, "must be the name of a bucket alone: the beginning of keys goes into spec.prefix")}},
	{At: "spec.endpoint", Must: musts{filled}},
	document.Related("spec", "endpoint", func(s *BucketSpec) error { _, err := s.endpoint(); return err }),
	{At: "spec.serviceAccountName", Only: V1, Must: musts{
		refuse("excludes secretRef: remove one of the two", isSet("spec.secretRef"), not(is("spec.provider", "generic", ""))),
		only("spec.provider", "aws", "gcp", "azure"), optionalName,
	}},
	interval, timeout,
	{At: "spec.sts", Must: musts{only("spec.provider", "aws", "generic", "")}},
	{At: "spec.sts.provider", Must: musts{filled, {Schema: keywords{"enum": []string{STSAWS, STSLDAP, STSWebIdentity}}}, tokenService("aws", STSAWS, STSWebIdentity), tokenService("generic", STSLDAP, STSWebIdentity)}},
	{At: "spec.sts.endpoint", Must: append(address("http", "https"), goOnly(func(text string) error { _, err := stsEndpoint.parse(text, true); return err }))},
	{At: "spec.sts.secretRef", Must: musts{
		require("is required with provider webidentity: a Secret with token", is("spec.sts.provider", STSWebIdentity)),
		only("spec.sts.provider", STSLDAP, STSWebIdentity),
	}},
	{At: "spec.sts.certSecretRef", Must: musts{only("spec.sts.provider", STSLDAP, STSWebIdentity)}},
	accessFrom,
}, references("spec.sts.secretRef", "spec.sts.certSecretRef", "spec.secretRef", "spec.certSecretRef", "spec.proxySecretRef"))

var ociFacts = slices.Concat([]document.Fact{
	{At: "spec.url", Must: append(address("oci"), without(`//.*/[^/]*[:@][^/]*$`, "must not hold a tag or digest: put it into spec.ref"))},
	{At: "spec.provider", Default: "generic", Must: musts{oneOf("generic", "aws", "azure", "gcp")}},
	{At: "spec.serviceAccountName", Must: musts{optionalName}},
	interval, timeout,
	{At: "spec.ref.digest", Must: musts{form(`^sha256:[a-f0-9]{64}$`, "be sha256: and 64 hexadecimal digits in lower case")}},
	{At: "spec.ref.semver", Must: musts{versionRange}},
	{At: "spec.ref.semverFilter", Must: musts{expression}},
	{At: "spec.ref.tag", Must: musts{form(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`, "be a tag: at most 128 letters, digits, '_', '.' and '-'")}},
	{At: "spec.layerSelector.operation", Must: musts{oneOf(LayerExtract, LayerCopy)}},
	{At: "spec.verify.trustedRootSecretRef", Only: V1},
	configChecksum,
}, references("spec.secretRef", "spec.certSecretRef", "spec.proxySecretRef"))

// verifyFacts are about the verification of OCI artifacts.
var verifyFacts = slices.Concat([]document.Fact{
	{At: "spec.verify.provider", Default: "cosign", Must: musts{oneOf("cosign", "notation")}},
	{At: "spec.verify.secretRef", Must: musts{require("is required with provider notation: a Secret with trustpolicy.json and the certificates it trusts", notation)}},
	{At: "spec.verify.matchOIDCIdentity", Must: musts{
		require("is required without secretRef, or a signature of anybody would do: "+
			`say who signs, or write {issuer: ".*", subject: ".*"} if anybody may`, is("spec.verify.provider", "cosign", ""), not(isSet("spec.verify.secretRef"))),
		refuse(`requires provider cosign, not "notation"`, notation),
	}},
	{At: "spec.verify.trustedRootSecretRef", Must: musts{refuse(`requires provider cosign, not "notation"`, notation)}},
	{At: "spec.verify.matchOIDCIdentity[].issuer", Must: musts{expression}},
	{At: "spec.verify.matchOIDCIdentity[].subject", Must: musts{expression}},
}, references("spec.verify.secretRef", "spec.verify.trustedRootSecretRef"))

var notation = is("spec.verify.provider", "notation")

var repositoryFacts = slices.Concat([]document.Fact{
	{At: "spec.url", Must: append(address("http", "https", "oci"), when(scheme("oci"), is("spec.type", RepositoryOCI)))},
	{At: "spec.type", Default: RepositoryIndex, Must: musts{oneOf(RepositoryIndex, RepositoryOCI)}},
	{At: "spec.verify", Must: musts{refuse("requires an index: with type oci a PkgChart says what to verify", is("spec.type", RepositoryOCI))}},
	{At: "spec.provider", Default: "generic", Must: musts{oneOf("generic", "aws", "azure", "gcp")}},
	{At: "spec.interval", Default: repositoryInterval, Must: musts{unsigned}},
	timeout,
	{At: "spec.accessFrom.namespaceSelectors", Default: []NamespaceSelector{}},
}, references("spec.verify.secretRef", "spec.secretRef", "spec.certSecretRef"))

// fromRepository is true if a chart comes from a chart repository, not from a tree.
var fromRepository = is("spec.sourceRef.kind", "PkgRepository", "HelmRepository")

var chartFacts = slices.Concat([]document.Fact{
	{At: "spec.chart", Must: musts{filled, when(goOnly(insidePath), not(fromRepository))}},
	{At: "spec.version", Default: "*", Must: musts{when(versionRange, fromRepository)}}, // ignored in a tree (specification, "PkgChart")
	{At: "spec.sourceRef.kind", Must: musts{filled, oneOf(append(slices.Clone(chartSources), "HelmRepository")...)}},
	{At: "spec.reconcileStrategy", Default: StrategyChartVersion, Must: musts{oneOf(StrategyChartVersion, StrategyRevision)}},
	{At: "spec.valuesFiles[]", Must: musts{goOnly(func(text string) error { _, err := new(PkgChart).valuesFile(text); return err })}},
	{At: "spec.valuesFile", Only: V1Beta2, Shape: textShape, Warning: "is deprecated: put it first in valuesFiles"},
	interval,
	{At: "spec.verify", Must: musts{refuse("requires a sourceRef of kind PkgRepository", not(fromRepository))}},
	{At: "spec.verify.trustedRootSecretRef", Only: noVersion, Must: musts{refuse("does not exist for PkgChart: remove it")}},
	accessFrom,
}, references("spec.sourceRef"))

var externalFacts = slices.Concat([]document.Fact{
	{At: "spec.sourceRef.kind", Must: musts{filled}},
}, references("spec.sourceRef"))

// references returns the facts for fields that name other objects.
func references(paths ...string) (all []document.Fact) {
	for _, path := range paths {
		all = append(all, document.Fact{At: path + ".name", Must: musts{objectName}})
	}
	return all
}

// fact returns the row about the existence of a field in the tables of k, nil if there is none.
func (k *kind) fact(path string) *document.Fact {
	for _, facts := range tables[k.name] {
		for i := range facts {
			if facts[i].At == path && facts[i].Field == "" {
				return &facts[i]
			}
		}
	}
	return nil
}

// rules returns the rules for documents of a kind in a version; "" has the fields of all versions.
func (k *kind) rules(version string) func(string) document.Rule {
	return func(path string) document.Rule {
		f := k.fact(path)
		if f == nil {
			return document.Rule{}
		}
		rule := document.Rule{Optional: f.Optional != "" && f.Optional == version, Text: f.Text, Shape: f.Shape, Warning: f.Warning}
		switch {
		case cmp.Or(f.Only, version) == version || version == "" && f.Only != noVersion:
		case f.Only == V1:
			rule.Refused = "exists in v1 only: set apiVersion to v1"
		case f.Only == noVersion:
			rule.Refused = "does not exist for " + k.name + ": remove it"
		case f.Warning == "":
			rule.Refused = "exists in v1beta2 only: remove it"
		default:
			rule.Refused = "exists in v1beta2 only, where it " + f.Warning
		}
		return rule
	}
}

var withoutHours = strings.Replace(document.DurationForm, "|h", "", 1)

// checkTimeout refuses the unit h, which timeouts do not have.
func checkTimeout(text string) error {
	if _, err := ParseDuration(text); err == nil && strings.Contains(text, "h") {
		return fmt.Errorf("%s has the unit h: write a timeout with the units ms, s and m", quote(text))
	}
	return nil
}

// checkImplementation refuses names that were never names of a client library.
func checkImplementation(name string) error {
	if name == "go-git" || name == "libgit2" {
		return nil
	}
	return errors.New("must be go-git or libgit2, not " + quote(name) + "; it has no effect: remove it")
}
