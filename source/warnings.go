package source

import (
	"net/url"
	"slices"
	"strings"
	"time"
)

// Warnings returns what is legal in an object and yet hardly meant: fields
// that have no effect, that conflict or that give credentials away. Each is a
// *DocumentError.
func Warnings(obj Object) []error {
	var found findings
	advise(obj, &found)
	return found.errors(obj.Head().String())
}

func advise(obj Object, found *findings) {
	head := obj.Head()
	if head.Version() == V1Beta2 {
		found.add("apiVersion", "v1beta2 is no longer served by clusters: convert the object to %s/v1", head.Group())
	}
	if a, ok := obj.(admitted); ok {
		a.advise(found)
	}
}

const shortInterval = 5 * time.Second

func adviseInterval(found *findings, interval time.Duration) {
	switch {
	case interval == 0:
		found.add("spec.interval", "0s: the origin is not checked again until the object changes")
	case interval < shortInterval:
		found.add("spec.interval", "%s asks the origin more often than every %s", interval, shortInterval)
	}
}

// A choice is one of the fields of which the first that is set wins.
type choice struct{ name, value string }

// adviseChoice names the fields of ref that another one overrules.
func adviseChoice(found *findings, field string, choices ...choice) {
	set := slices.DeleteFunc(choices, func(c choice) bool { return c.value == "" })
	for i := 1; i < len(set); i++ {
		found.add(field+"."+set[i].name, "has no effect: %s wins", set[0].name)
	}
}

// adviseURL warns of credentials in a URL and of those that travel in the clear.
func adviseURL(found *findings, text string, insecure bool, secret *LocalReference) {
	u, err := url.Parse(text)
	if err != nil {
		return
	}
	if _, has := u.User.Password(); has {
		found.add("spec.url", "holds a password, which anyone who reads the object sees: use secretRef")
	}
	if (insecure || u.Scheme == "http") && (secret != nil || u.User != nil) {
		found.add("spec.url", "sends credentials in the clear: use TLS")
	}
}

// adviseIgnore warns of an ignore list without a pattern.
func adviseIgnore(found *findings, ignore *string) {
	if ignore == nil {
		return
	}
	for line := range strings.Lines(*ignore) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			return
		}
	}
	found.add("spec.ignore", "holds no pattern, so that the default patterns still apply: to disable them write !*")
}

func (g *GitRepository) advise(found *findings) {
	adviseInterval(found, g.Interval())
	adviseURL(found, g.Spec.URL, false, g.Spec.SecretRef)
	adviseIgnore(found, g.Spec.Ignore)
	ref := g.Spec.Ref
	if ref == nil {
		return
	}
	branch := ref.Branch
	if ref.Commit != "" && ref.Name+ref.SemVer+ref.Tag == "" {
		branch = "" // the branch that must hold the commit
	}
	adviseChoice(found, "spec.ref", choice{"commit", ref.Commit}, choice{"name", ref.Name},
		choice{"semver", ref.SemVer}, choice{"tag", ref.Tag}, choice{"branch", branch})
	if ref.Commit+ref.Name == "" && ref.SemVer != "" && ref.Tag != "" {
		found.add("spec.ref", "the reference implementation lets tag win over semver: remove one of the two")
	}
}

func (b *Bucket) advise(found *findings) {
	adviseInterval(found, b.Interval())
	b.Spec.adviseEndpoint(found)
	if p := generic(b.Spec.Provider); b.Spec.Region != "" && (p == "gcp" || p == "azure") {
		found.add("spec.region", "has no effect with provider %s", p)
	}
	if strings.HasPrefix(b.Spec.Prefix, "/") {
		found.add("spec.prefix", "begins with a slash, as keys hardly ever do: leave it out")
	}
	if b.Spec.STS == nil {
		return
	}
	if b.Spec.SecretRef != nil {
		found.add("spec.sts", "has no effect: the keys of secretRef are used")
	}
	if strings.HasPrefix(b.Spec.STS.Endpoint, "http://") {
		found.add("spec.sts.endpoint", "sends credentials in the clear: use TLS")
	}
}

// adviseEndpoint warns of credentials in the endpoint, and of what travels in the clear.
func (s *BucketSpec) adviseEndpoint(found *findings) {
	u, err := s.endpoint()
	if err != nil {
		return
	}
	if u.RawQuery != "" {
		found.add("spec.endpoint", "holds a signature, which anyone who reads the object sees: use sasKey of secretRef")
	}
	switch {
	case !s.Insecure:
	case u.Scheme == "https":
		found.add("spec.insecure", "has no effect: the endpoint begins with https://")
	case s.SecretRef != nil || u.RawQuery != "":
		found.add("spec.insecure", "sends what the bucket holds in the clear")
	}
}

func (o *OCIRepository) advise(found *findings) {
	adviseInterval(found, o.Interval())
	adviseURL(found, o.Spec.URL, o.Spec.Insecure, o.Spec.SecretRef)
	if o.Spec.LayerSelector.selection().Operation == LayerExtract {
		adviseIgnore(found, o.Spec.Ignore)
	} else if o.Spec.Ignore != nil {
		found.add("spec.ignore", "has no effect with layerSelector.operation copy")
	}
	o.Spec.Verify.advise(found)
	if ref := o.Spec.Ref; ref != nil {
		adviseChoice(found, "spec.ref", choice{"digest", ref.Digest}, choice{"semver", ref.SemVer}, choice{"tag", ref.Tag})
		if ref.SemVerFilter != "" && ref.SemVer == "" {
			found.add("spec.ref.semverFilter", "has no effect without semver")
		}
	}
}

func (v *OCIRepositoryVerification) advise(found *findings) {
	if v == nil || v.SecretRef == nil || v.provider() != "cosign" {
		return
	}
	if len(v.MatchOIDCIdentity) > 0 {
		found.add("spec.verify.matchOIDCIdentity", "has no effect: the keys of secretRef decide")
	}
	if v.TrustedRootSecretRef != nil {
		found.add("spec.verify.trustedRootSecretRef", "has no effect: the keys of secretRef decide")
	}
}

func (p *PkgRepository) advise(found *findings) {
	adviseInterval(found, p.Interval())
	adviseURL(found, p.Spec.URL, p.Spec.Type == RepositoryOCI && p.Spec.Insecure, p.Spec.SecretRef)
	if p.Spec.Type == RepositoryOCI {
		if p.Spec.PassCredentials {
			found.add("spec.passCredentials", "has no effect: it goes with type default")
		}
		return
	}
	if p.Spec.PassCredentials && p.Spec.SecretRef == nil && !strings.Contains(p.Spec.URL, "@") {
		found.add("spec.passCredentials", "has no effect without secretRef")
	}
	if p.Spec.Insecure {
		found.add("spec.insecure", "has no effect: it goes with type oci")
	}
	if generic(p.Spec.Provider) != "generic" {
		found.add("spec.provider", "has no effect: it goes with type oci")
	}
	if strings.HasPrefix(p.Spec.URL, "oci://") {
		found.add("spec.type", "must be oci for this URL to work")
	}
}

func (c *PkgChart) advise(found *findings) {
	adviseInterval(found, c.Interval())
	c.Spec.Verify.advise(found)
	k := spelledKind(c.Spec.SourceRef.Kind)
	if k != nil && k.name != "PkgRepository" && c.Spec.Version != "" && c.Spec.Version != "*" {
		found.add("spec.version", "has no effect with a chart from a %s", k.name)
	}
	if c.Spec.IgnoreMissingValuesFiles && len(c.Spec.ValuesFiles) == 0 {
		found.add("spec.ignoreMissingValuesFiles", "has no effect without valuesFiles")
	}
}

func (e *ExternalArtifact) advise(*findings) {}
