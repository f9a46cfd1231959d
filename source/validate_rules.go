package source

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/artifact"
)

// The tables of admission rules; they never change. A later rule for a field
// is only asked when the earlier ones hold.

var artifactRules = []rule[*artifact.Artifact]{
	{"digest", func(a *artifact.Artifact) error { return unless(a.Digest, digestForm) }},
}

var referenceRules = []rule[*LocalReference]{
	{"name", func(r *LocalReference) error { return objectName(r.Name) }},
}

var gitRules = []rule[*GitRepositorySpec]{
	{"url", func(s *GitRepositorySpec) error { return address(s.URL, "http", "https", "ssh") }},
	{"provider", func(s *GitRepositorySpec) error { return oneOf(s.Provider, "generic", "azure", "github", "aws") }},
	{"serviceAccountName", func(s *GitRepositorySpec) error {
		return only(s.ServiceAccountName != "", s.Provider, "azure", "aws")
	}},
	{"serviceAccountName", func(s *GitRepositorySpec) error { return optionalName(s.ServiceAccountName) }},
	{"interval", func(s *GitRepositorySpec) error { return unsigned(s.Interval) }},
	{"timeout", func(s *GitRepositorySpec) error { return unsigned(s.Timeout) }},
	{"submoduleCredentials", func(s *GitRepositorySpec) error { return distinctOrigins(s.SubmoduleCredentials) }},
}

var submoduleRules = []rule[GitSubmoduleCredential]{
	{"url", func(c GitSubmoduleCredential) error { return address(c.URL, "http", "https", "ssh") }},
	{"url", func(c GitSubmoduleCredential) error { return bareOrigin(c.URL) }},
	{"secretRef.name", func(c GitSubmoduleCredential) error { return objectName(c.SecretRef.Name) }},
}

var gitRefRules = []rule[*GitRepositoryRef]{
	{"branch", func(r *GitRepositoryRef) error { return refPart("refs/heads/", r.Branch) }},
	{"tag", func(r *GitRepositoryRef) error { return refPart("refs/tags/", r.Tag) }},
	{"semver", func(r *GitRepositoryRef) error { return versionRange(r.SemVer) }},
	{"name", func(r *GitRepositoryRef) error { return refName(r.Name) }},
	{"commit", func(r *GitRepositoryRef) error { return unless(r.Commit, commitForm) }},
}

var gitVerifyRules = []rule[*GitRepositoryVerification]{
	{"mode", func(v *GitRepositoryVerification) error {
		return oneOf(v.Mode, VerifyHEAD, VerifyHead, VerifyTag, VerifyTagAndHEAD)
	}},
}

var includeRules = []rule[GitRepositoryInclude]{
	{"repository.name", func(i GitRepositoryInclude) error { return objectName(i.Repository.Name) }},
	{"repository.kind", func(i GitRepositoryInclude) error {
		return oneOf(i.Repository.Kind, "GitRepository", "Bucket", "OCIRepository", "PkgChart", "ExternalArtifact")
	}},
	{"fromPath", func(i GitRepositoryInclude) error { return insidePath(i.FromPath) }},
	{"toPath", func(i GitRepositoryInclude) error { return insidePath(i.ToPath) }},
}

var bucketRules = []rule[*BucketSpec]{
	{"provider", func(s *BucketSpec) error { return oneOf(s.Provider, "generic", "aws", "gcp", "azure") }},
	{"bucketName", func(s *BucketSpec) error { return present(s.BucketName) }},
	{"bucketName", func(s *BucketSpec) error { return onePart(s.BucketName) }},
	{"endpoint", func(s *BucketSpec) error { _, err := s.endpoint(); return err }},
	{"sts", func(s *BucketSpec) error { return only(s.STS != nil, generic(s.Provider), "aws", "generic") }},
	{"serviceAccountName", func(s *BucketSpec) error {
		return only(s.ServiceAccountName != "", s.Provider, "aws", "gcp", "azure")
	}},
	{"serviceAccountName", func(s *BucketSpec) error {
		return exclusive(s.ServiceAccountName != "", s.SecretRef != nil, "secretRef")
	}},
	{"serviceAccountName", func(s *BucketSpec) error { return optionalName(s.ServiceAccountName) }},
	{"interval", func(s *BucketSpec) error { return unsigned(s.Interval) }},
	{"timeout", func(s *BucketSpec) error { return unsigned(s.Timeout) }},
}

// stsProviders says which token services go with which provider of a bucket.
var stsProviders = map[string][]string{"aws": {STSAWS, STSWebIdentity}, "generic": {STSLDAP, STSWebIdentity}}

var stsRules = []rule[*BucketSpec]{
	{"provider", func(s *BucketSpec) error { return present(s.STS.Provider) }},
	{"provider", func(s *BucketSpec) error {
		provider := generic(s.Provider)
		if with := stsProviders[provider]; with != nil && !slices.Contains(with, s.STS.Provider) {
			return fmt.Errorf("must be %s with spec.provider %s, not %s", strings.Join(with, " or "), provider, quote(s.STS.Provider))
		}
		return nil
	}},
	{"endpoint", func(s *BucketSpec) error { return address(s.STS.Endpoint, "http", "https") }},
	{"endpoint", func(s *BucketSpec) error { _, err := s.STS.endpoint(); return err }},
	{"secretRef", func(s *BucketSpec) error {
		return only(s.STS.SecretRef != nil, s.STS.Provider, STSLDAP, STSWebIdentity)
	}},
	{"secretRef", func(s *BucketSpec) error {
		if s.STS.Provider == STSWebIdentity && s.STS.SecretRef == nil {
			return errors.New("is required with provider webidentity: a Secret with token")
		}
		return nil
	}},
	{"certSecretRef", func(s *BucketSpec) error {
		return only(s.STS.CertSecretRef != nil, s.STS.Provider, STSLDAP, STSWebIdentity)
	}},
}

var ociRules = []rule[*OCIRepositorySpec]{
	{"url", func(s *OCIRepositorySpec) error { return address(s.URL, "oci") }},
	{"url", func(s *OCIRepositorySpec) error { return untagged(s.URL) }},
	{"provider", func(s *OCIRepositorySpec) error { return oneOf(s.Provider, "generic", "aws", "azure", "gcp") }},
	{"serviceAccountName", func(s *OCIRepositorySpec) error { return optionalName(s.ServiceAccountName) }},
	{"interval", func(s *OCIRepositorySpec) error { return unsigned(s.Interval) }},
	{"timeout", func(s *OCIRepositorySpec) error { return unsigned(s.Timeout) }},
}

var ociRefRules = []rule[*OCIRepositoryRef]{
	{"digest", func(r *OCIRepositoryRef) error { return unless(r.Digest, sha256Form) }},
	{"semver", func(r *OCIRepositoryRef) error { return versionRange(r.SemVer) }},
	{"semverFilter", func(r *OCIRepositoryRef) error { return expression(r.SemVerFilter) }},
	{"tag", func(r *OCIRepositoryRef) error { return unless(r.Tag, tagForm) }},
}

var layerRules = []rule[*OCILayerSelector]{
	{"operation", func(l *OCILayerSelector) error { return oneOf(l.Operation, LayerExtract, LayerCopy) }},
}

var verifyRules = []rule[*OCIRepositoryVerification]{
	{"provider", func(v *OCIRepositoryVerification) error { return oneOf(v.Provider, "cosign", "notation") }},
	{"secretRef", func(v *OCIRepositoryVerification) error {
		if v.Provider == "notation" && v.SecretRef == nil {
			return errors.New("is required with provider notation: a Secret with trustpolicy.json and the certificates it trusts")
		}
		return nil
	}},
	{"matchOIDCIdentity", func(v *OCIRepositoryVerification) error {
		if v.provider() == "cosign" && v.SecretRef == nil && len(v.MatchOIDCIdentity) == 0 {
			return errors.New("is required without secretRef, or a signature of anybody would do: " +
				`say who signs, or write {issuer: ".*", subject: ".*"} if anybody may`)
		}
		return only(len(v.MatchOIDCIdentity) > 0 && v.Provider == "notation", v.Provider, "cosign")
	}},
	{"trustedRootSecretRef", func(v *OCIRepositoryVerification) error {
		return only(v.TrustedRootSecretRef != nil && v.Provider == "notation", v.Provider, "cosign")
	}},
}

var identityRules = []rule[OIDCIdentityMatch]{
	{"issuer", func(m OIDCIdentityMatch) error { return expression(m.Issuer) }},
	{"subject", func(m OIDCIdentityMatch) error { return expression(m.Subject) }},
}

var repositoryRules = []rule[*PkgRepositorySpec]{
	{"url", func(s *PkgRepositorySpec) error { return address(s.URL, "http", "https", "oci") }},
	{"url", func(s *PkgRepositorySpec) error {
		if s.Type == RepositoryOCI {
			return address(s.URL, "oci")
		}
		return nil
	}},
	{"type", func(s *PkgRepositorySpec) error { return oneOf(s.Type, RepositoryIndex, RepositoryOCI) }},
	{"verify", func(s *PkgRepositorySpec) error {
		if s.Verify != nil && s.Type == RepositoryOCI {
			return errors.New("goes with an index only: with type oci a PkgChart says what to verify")
		}
		return nil
	}},
	{"provider", func(s *PkgRepositorySpec) error { return oneOf(s.Provider, "generic", "aws", "azure", "gcp") }},
	{"interval", func(s *PkgRepositorySpec) error { return unsigned(s.Interval) }},
	{"timeout", func(s *PkgRepositorySpec) error { return unsigned(s.Timeout) }},
}

var chartRules = []rule[*PkgChartSpec]{
	{"chart", func(s *PkgChartSpec) error { return present(s.Chart) }},
	{"chart", func(s *PkgChartSpec) error {
		if k := spelledKind(s.SourceRef.Kind); k == nil || k.name == "PkgRepository" {
			return nil // a name, as its repository has it
		}
		return insidePath(s.Chart)
	}},
	{"version", func(s *PkgChartSpec) error {
		if k := spelledKind(s.SourceRef.Kind); k != nil && k.name != "PkgRepository" {
			return nil // ignored there (specification, "PkgChart")
		}
		return versionRange(s.Version)
	}},
	{"sourceRef.kind", func(s *PkgChartSpec) error { return present(s.SourceRef.Kind) }},
	{"sourceRef.kind", func(s *PkgChartSpec) error {
		return oneOf(s.SourceRef.Kind, append(slices.Clone(chartSources), "HelmRepository")...)
	}},
	{"sourceRef.name", func(s *PkgChartSpec) error { return objectName(s.SourceRef.Name) }},
	{"reconcileStrategy", func(s *PkgChartSpec) error {
		return oneOf(s.ReconcileStrategy, StrategyChartVersion, StrategyRevision)
	}},
	{"verify", func(s *PkgChartSpec) error {
		if k := spelledKind(s.SourceRef.Kind); s.Verify != nil && k != nil && k.name != "PkgRepository" {
			return errors.New("goes with a sourceRef of kind PkgRepository only")
		}
		return nil
	}},
	{"verify.trustedRootSecretRef", func(s *PkgChartSpec) error {
		if s.Verify != nil && s.Verify.TrustedRootSecretRef != nil {
			return errors.New("does not exist for PkgChart: remove it")
		}
		return nil
	}},
	{"interval", func(s *PkgChartSpec) error { return unsigned(s.Interval) }},
}

var externalRules = []rule[*ExternalSourceReference]{
	{"kind", func(r *ExternalSourceReference) error { return present(r.Kind) }},
	{"name", func(r *ExternalSourceReference) error { return objectName(r.Name) }},
}
