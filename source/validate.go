package source

import (
	"errors"
	"fmt"

	"github.com/headgate-io/headgate/internal/document"
)

// Validate checks an object against the admission rules of an API server
// (reference, section 0) and those that keep an object from working at all:
// expressions that do not compile, names that git or a registry would refuse.
// The error joins one *DocumentError for each defect. Validate changes
// nothing; call [Default] first for an object made in Go.
func Validate(obj Object) error {
	var found document.Findings
	check(obj, &found)
	return errors.Join(found.Of(obj.Head().String())...)
}

// check notes what is wrong with obj.
func check(obj Object, found *document.Findings) {
	checkMetadata(&obj.Head().Metadata, found)
	if a := obj.Common().Artifact; a != nil {
		apply(found, "status.artifact", artifactRules, a)
	}
	if a, ok := obj.(admitted); ok {
		a.check(found)
	}
}

// A rule is what must hold for one field.
type rule[T any] struct {
	field string
	check func(T) error
}

// apply checks v, which is the field at path, against rules in order. A field
// is reported once.
func apply[T any](found *document.Findings, path string, rules []rule[T], v T) {
	for _, r := range rules {
		field := path + "." + r.field
		if found.About(field) {
			continue
		}
		if err := r.check(v); err != nil {
			found.Add(field, "%w", err)
		}
	}
}

// each checks every item of the list at path.
func each[T any](found *document.Findings, path string, rules []rule[T], items []T) {
	for i, item := range items {
		apply(found, fmt.Sprintf("%s[%d]", path, i), rules, item)
	}
}

// optional checks a value that may be missing.
func optional[T any](found *document.Findings, path string, rules []rule[*T], v *T) {
	if v != nil {
		apply(found, path, rules, v)
	}
}

// A secretField is a reference to a secret and the path it is at.
type secretField struct {
	path string
	ref  *LocalReference
}

func checkSecrets(found *document.Findings, refs ...secretField) {
	for _, r := range refs {
		optional(found, r.path, referenceRules, r.ref)
	}
}

func (g *GitRepository) check(found *document.Findings) {
	apply(found, "spec", gitRules, &g.Spec)
	optional(found, "spec.ref", gitRefRules, g.Spec.Ref)
	optional(found, "spec.verify", gitVerifyRules, g.Spec.Verify)
	each(found, "spec.include", includeRules, g.Spec.Include)
	each(found, "spec.submoduleCredentials", submoduleRules, g.Spec.SubmoduleCredentials)
	for i := range g.Status.IncludedArtifacts {
		apply(found, fmt.Sprintf("status.includedArtifacts[%d]", i), artifactRules, &g.Status.IncludedArtifacts[i])
	}
	g.Spec.checkSparse(found)
	checkSecrets(found,
		secretField{"spec.secretRef", g.Spec.SecretRef},
		secretField{"spec.proxySecretRef", g.Spec.ProxySecretRef})
	if g.Spec.Verify != nil {
		checkSecrets(found, secretField{"spec.verify.secretRef", &g.Spec.Verify.SecretRef})
	}
}

func (b *Bucket) check(found *document.Findings) {
	apply(found, "spec", bucketRules, &b.Spec)
	if sts := b.Spec.STS; sts != nil {
		apply(found, "spec.sts", stsRules, &b.Spec)
		checkSecrets(found, secretField{"spec.sts.secretRef", sts.SecretRef}, secretField{"spec.sts.certSecretRef", sts.CertSecretRef})
	}
	checkSecrets(found,
		secretField{"spec.secretRef", b.Spec.SecretRef},
		secretField{"spec.certSecretRef", b.Spec.CertSecretRef},
		secretField{"spec.proxySecretRef", b.Spec.ProxySecretRef})
}

func (o *OCIRepository) check(found *document.Findings) {
	apply(found, "spec", ociRules, &o.Spec)
	optional(found, "spec.ref", ociRefRules, o.Spec.Ref)
	optional(found, "spec.layerSelector", layerRules, o.Spec.LayerSelector)
	o.Spec.Verify.check(found)
	checkSecrets(found,
		secretField{"spec.secretRef", o.Spec.SecretRef},
		secretField{"spec.certSecretRef", o.Spec.CertSecretRef},
		secretField{"spec.proxySecretRef", o.Spec.ProxySecretRef})
}

func (v *OCIRepositoryVerification) check(found *document.Findings) {
	if v == nil {
		return
	}
	apply(found, "spec.verify", verifyRules, v)
	each(found, "spec.verify.matchOIDCIdentity", identityRules, v.MatchOIDCIdentity)
	checkSecrets(found,
		secretField{"spec.verify.secretRef", v.SecretRef},
		secretField{"spec.verify.trustedRootSecretRef", v.TrustedRootSecretRef})
}

func (p *PkgRepository) check(found *document.Findings) {
	apply(found, "spec", repositoryRules, &p.Spec)
	if v := p.Spec.Verify; v != nil {
		checkSecrets(found, secretField{"spec.verify.secretRef", &v.SecretRef})
	}
	checkSecrets(found,
		secretField{"spec.secretRef", p.Spec.SecretRef},
		secretField{"spec.certSecretRef", p.Spec.CertSecretRef})
}

func (c *PkgChart) check(found *document.Findings) {
	apply(found, "spec", chartRules, &c.Spec)
	c.checkValues(found)
	c.Spec.Verify.check(found)
}

func (e *ExternalArtifact) check(found *document.Findings) {
	optional(found, "spec.sourceRef", externalRules, e.Spec.SourceRef)
}
