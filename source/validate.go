package source

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/internal/document"
)

// Validate checks an object against the admission rules of an API server
// (reference, section 0) and those that keep an object from working at all:
// expressions that do not compile, names that git or a registry would refuse.
// The error joins one *DocumentError for each defect. Validate changes
// nothing; call [Default] first for an object made in Go.
func Validate(obj Object) error {
	return errors.Join(check(obj).Of(obj.Head().String())...)
}

// check returns what is wrong with obj.
func check(obj Object) *document.Findings {
	found := new(document.Findings)
	checkMetadata(&obj.Head().Metadata, found)
	if a, ok := obj.(admitted); ok {
		for _, facts := range append(a.facts(), commonFacts) {
			rules := new(document.Findings)
			rules.Examine(obj, facts)
			found.Adopt(rules)
		}
	}
	return found
}

// The tables of admission rules; they never change. A later fact about a field
// is only checked when the earlier ones hold, and what a later table says of a
// field counts if no earlier one says anything about it or one around it.

// commonFacts are about what every kind has.
var commonFacts = []document.Fact{document.Value("status.artifact.digest", formed(digestForm))}

func (g *GitRepository) facts() [][]document.Fact { return [][]document.Fact{gitFacts} }

var gitFacts = []document.Fact{
	document.Value("status.includedArtifacts[].digest", formed(digestForm)),
	document.Value("spec.url", address("http", "https", "ssh")),
	document.Value("spec.provider", oneOf("generic", "azure", "github", "aws")),
	document.Related("spec", "serviceAccountName", func(s *GitRepositorySpec) error {
		return only(s.ServiceAccountName != "", s.Provider, "azure", "aws")
	}),
	document.Value("spec.serviceAccountName", optionalName),
	document.Value("spec.interval", unsigned),
	document.Value("spec.timeout", unsigned),
	document.Value("spec.ref.branch", refPart("refs/heads/")),
	document.Value("spec.ref.tag", refPart("refs/tags/")),
	document.Value("spec.ref.semver", versionRange),
	document.Value("spec.ref.name", refName),
	document.Value("spec.ref.commit", formed(commitForm)),
	document.Value("spec.verify.mode", oneOf(VerifyHEAD, VerifyHead, VerifyTag, VerifyTagAndHEAD)),
	document.Value("spec.verify.secretRef.name", objectName),
	document.Value("spec.include[].repository.name", objectName),
	document.Value("spec.include[].repository.kind", oneOf("GitRepository", "Bucket", "OCIRepository", "PkgChart", "ExternalArtifact")),
	document.Value("spec.include[].fromPath", insidePath),
	document.Value("spec.include[].toPath", insidePath),
	document.Value("spec.sparseCheckout[]", func(entry string) error { _, err := sparseDir(entry); return err }),
	document.Value("spec.submoduleCredentials", distinctOrigins),
	document.Value("spec.submoduleCredentials[].url", address("http", "https", "ssh"), bareOrigin),
	document.Value("spec.submoduleCredentials[].secretRef.name", objectName),
	document.Value("spec.secretRef.name", objectName),
	document.Value("spec.proxySecretRef.name", objectName),
}

func (b *Bucket) facts() [][]document.Fact { return [][]document.Fact{bucketFacts} }

var bucketFacts = []document.Fact{
	document.Value("spec.provider", oneOf("generic", "aws", "gcp", "azure")),
	document.Value("spec.bucketName", present, onePart),
	document.Related("spec", "endpoint", func(s *BucketSpec) error { _, err := s.endpoint(); return err }),
	document.Related("spec", "serviceAccountName", func(s *BucketSpec) error {
		if s.ServiceAccountName != "" && s.SecretRef != nil && s.Provider != "" && s.Provider != "generic" {
			return errors.New("excludes secretRef: remove one of the two")
		}
		return only(s.ServiceAccountName != "", s.Provider, "aws", "gcp", "azure")
	}),
	document.Value("spec.serviceAccountName", optionalName),
	document.Value("spec.interval", unsigned),
	document.Value("spec.timeout", unsigned),
	document.Related("spec", "sts", func(s *BucketSpec) error {
		return only(s.STS != nil, generic(s.Provider), "aws", "generic")
	}),
	document.Value("spec.sts.provider", present),
	document.Related("spec", "sts.provider", stsProvider),
	document.Value("spec.sts.endpoint", address("http", "https"), func(text string) error { _, err := stsEndpoint.parse(text, true); return err }),
	document.Related("spec.sts", "secretRef", func(s *BucketSTSSpec) error {
		if s.Provider == STSWebIdentity && s.SecretRef == nil {
			return errors.New("is required with provider webidentity: a Secret with token")
		}
		return only(s.SecretRef != nil, s.Provider, STSLDAP, STSWebIdentity)
	}),
	document.Related("spec.sts", "certSecretRef", func(s *BucketSTSSpec) error {
		return only(s.CertSecretRef != nil, s.Provider, STSLDAP, STSWebIdentity)
	}),
	document.Value("spec.sts.secretRef.name", objectName),
	document.Value("spec.sts.certSecretRef.name", objectName),
	document.Value("spec.secretRef.name", objectName),
	document.Value("spec.certSecretRef.name", objectName),
	document.Value("spec.proxySecretRef.name", objectName),
}

// stsProviders says which token services go with which provider of a bucket.
var stsProviders = map[string][]string{"aws": {STSAWS, STSWebIdentity}, "generic": {STSLDAP, STSWebIdentity}}

func stsProvider(s *BucketSpec) error {
	provider := generic(s.Provider)
	if with := stsProviders[provider]; s.STS != nil && with != nil && !slices.Contains(with, s.STS.Provider) {
		return fmt.Errorf("must be %s with spec.provider %s, not %s", strings.Join(with, " or "), provider, quote(s.STS.Provider))
	}
	return nil
}

func (o *OCIRepository) facts() [][]document.Fact { return [][]document.Fact{ociFacts, verifyFacts} }

var ociFacts = []document.Fact{
	document.Value("spec.url", address("oci"), untagged),
	document.Value("spec.provider", oneOf("generic", "aws", "azure", "gcp")),
	document.Value("spec.serviceAccountName", optionalName),
	document.Value("spec.interval", unsigned),
	document.Value("spec.timeout", unsigned),
	document.Value("spec.ref.digest", formed(sha256Form)),
	document.Value("spec.ref.semver", versionRange),
	document.Value("spec.ref.semverFilter", expression),
	document.Value("spec.ref.tag", formed(tagForm)),
	document.Value("spec.layerSelector.operation", oneOf(LayerExtract, LayerCopy)),
	document.Value("spec.secretRef.name", objectName),
	document.Value("spec.certSecretRef.name", objectName),
	document.Value("spec.proxySecretRef.name", objectName),
}

// verifyFacts are about the verification of OCI artifacts.
var verifyFacts = []document.Fact{
	document.Value("spec.verify.provider", oneOf("cosign", "notation")),
	document.Related("spec.verify", "secretRef", func(v *OCIRepositoryVerification) error {
		if v.Provider == "notation" && v.SecretRef == nil {
			return errors.New("is required with provider notation: a Secret with trustpolicy.json and the certificates it trusts")
		}
		return nil
	}),
	document.Related("spec.verify", "matchOIDCIdentity", func(v *OCIRepositoryVerification) error {
		if v.provider() == "cosign" && v.SecretRef == nil && len(v.MatchOIDCIdentity) == 0 {
			return errors.New("is required without secretRef, or a signature of anybody would do: " +
				`say who signs, or write {issuer: ".*", subject: ".*"} if anybody may`)
		}
		return only(len(v.MatchOIDCIdentity) > 0 && v.Provider == "notation", v.Provider, "cosign")
	}),
	document.Related("spec.verify", "trustedRootSecretRef", func(v *OCIRepositoryVerification) error {
		return only(v.TrustedRootSecretRef != nil && v.Provider == "notation", v.Provider, "cosign")
	}),
	document.Value("spec.verify.matchOIDCIdentity[].issuer", expression),
	document.Value("spec.verify.matchOIDCIdentity[].subject", expression),
	document.Value("spec.verify.secretRef.name", objectName),
	document.Value("spec.verify.trustedRootSecretRef.name", objectName),
}

func (p *PkgRepository) facts() [][]document.Fact { return [][]document.Fact{repositoryFacts} }

var repositoryFacts = []document.Fact{
	document.Value("spec.url", address("http", "https", "oci")),
	document.Related("spec", "url", func(s *PkgRepositorySpec) error {
		if s.Type == RepositoryOCI {
			return address("oci")(s.URL)
		}
		return nil
	}),
	document.Value("spec.type", oneOf(RepositoryIndex, RepositoryOCI)),
	document.Related("spec", "verify", func(s *PkgRepositorySpec) error {
		if s.Verify != nil && s.Type == RepositoryOCI {
			return errors.New("goes with an index only: with type oci a PkgChart says what to verify")
		}
		return nil
	}),
	document.Value("spec.provider", oneOf("generic", "aws", "azure", "gcp")),
	document.Value("spec.interval", unsigned),
	document.Value("spec.timeout", unsigned),
	document.Value("spec.verify.secretRef.name", objectName),
	document.Value("spec.secretRef.name", objectName),
	document.Value("spec.certSecretRef.name", objectName),
}

func (c *PkgChart) facts() [][]document.Fact { return [][]document.Fact{chartFacts, verifyFacts} }

var chartFacts = []document.Fact{
	document.Value("spec.chart", present),
	document.Related("spec", "chart", func(s *PkgChartSpec) error {
		if s.inTree() {
			return insidePath(s.Chart)
		}
		return nil // a name, as its repository has it
	}),
	document.Related("spec", "version", func(s *PkgChartSpec) error {
		if s.inTree() {
			return nil // ignored there (specification, "PkgChart")
		}
		return versionRange(s.Version)
	}),
	document.Value("spec.sourceRef.kind", present, oneOf(append(slices.Clone(chartSources), "HelmRepository")...)),
	document.Value("spec.sourceRef.name", objectName),
	document.Value("spec.reconcileStrategy", oneOf(StrategyChartVersion, StrategyRevision)),
	document.Value("spec.valuesFiles[]", func(text string) error { _, err := new(PkgChart).valuesFile(text); return err }),
	document.Value("spec.interval", unsigned),
	document.Related("spec", "verify", func(s *PkgChartSpec) error {
		if s.Verify != nil && s.inTree() {
			return errors.New("goes with a sourceRef of kind PkgRepository only")
		}
		return nil
	}),
	document.Related("spec.verify", "trustedRootSecretRef", func(v *OCIRepositoryVerification) error {
		if v.TrustedRootSecretRef != nil {
			return errors.New("does not exist for PkgChart: remove it")
		}
		return nil
	}),
}

func (e *ExternalArtifact) facts() [][]document.Fact { return [][]document.Fact{externalFacts} }

var externalFacts = []document.Fact{
	document.Value("spec.sourceRef.kind", present),
	document.Value("spec.sourceRef.name", objectName),
}

const maxAnnotations = 256 << 10 // bytes of all keys and values

func checkMetadata(m *Metadata, found *document.Findings) {
	if m.Name == "" && m.GenerateName != "" {
		found.Add("metadata.name", "is required: generateName needs an API server")
	} else {
		found.Check("metadata.name", objectName(m.Name))
	}
	found.Check("metadata.namespace", document.CheckNamespace(m.space()))
	for _, key := range slices.Sorted(maps.Keys(m.Labels)) {
		field, v := "metadata.labels["+key+"]", m.Labels[key]
		if err := qualifiedKey(key); err != nil {
			found.Check(field, err)
		} else if v != "" && !qualified(v) {
			found.Add(field, "%s is no label value: write at most 63 letters, digits, '-', '_' and '.'", quote(v))
		}
	}
	size := 0
	for _, key := range slices.Sorted(maps.Keys(m.Annotations)) {
		size += len(key) + len(m.Annotations[key])
		found.Check("metadata.annotations["+key+"]", qualifiedKey(strings.ToLower(key)))
	}
	found.AddIf(size > maxAnnotations, "metadata.annotations", "must hold at most %d KiB", maxAnnotations>>10)
}
