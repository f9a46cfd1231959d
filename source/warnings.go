package source

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/document"
)

// Warnings returns what is legal in an object and yet hardly meant: fields
// that have no effect, that conflict or that give credentials away. Each is a
// *DocumentError.
func Warnings(obj Object) []error {
	var found document.Findings
	advise(obj, &found)
	return found.Of(obj.Head().String())
}

func advise(obj Object, found *document.Findings) {
	head := obj.Head()
	if head.Version() == V1Beta2 {
		found.Add("apiVersion", "v1beta2 is no longer served by clusters: convert the object to %s/v1", head.Group())
	}
	if a, ok := obj.(admitted); ok {
		a.advise(found)
	}
}

const shortInterval = 5 * time.Second

func adviseInterval(found *document.Findings, interval time.Duration) {
	switch {
	case interval == 0:
		found.Add("spec.interval", "0s: the origin is not checked again until the object changes")
	case interval < shortInterval:
		found.Add("spec.interval", "%s asks the origin more often than every %s", interval, shortInterval)
	}
}

// A choice is one of the fields of which the first that is set wins.
type choice struct{ name, value string }

// adviseChoice names the fields of ref that another one overrules.
func adviseChoice(found *document.Findings, field string, choices ...choice) {
	set := slices.DeleteFunc(choices, func(c choice) bool { return c.value == "" })
	for i := 1; i < len(set); i++ {
		found.Add(field+"."+set[i].name, "has no effect: %s wins", set[0].name)
	}
}

// adviseURL warns of credentials in a URL and of those that travel in the clear.
func adviseURL(found *document.Findings, text string, insecure bool, secret *LocalReference) {
	u, err := url.Parse(text)
	if err != nil {
		return
	}
	if _, has := u.User.Password(); has {
		found.Add("spec.url", "holds a password, which anyone who reads the object sees: use secretRef")
	}
	if (insecure || u.Scheme == "http") && (secret != nil || u.User != nil) {
		found.Add("spec.url", "sends credentials in the clear: use TLS")
	}
}

// adviseIgnore warns of an ignore list without a pattern.
func adviseIgnore(found *document.Findings, ignore *string) {
	if ignore == nil {
		return
	}
	for line := range strings.Lines(*ignore) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			return
		}
	}
	found.Add("spec.ignore", "holds no pattern, so that the default patterns still apply: to disable them write !*")
}

func (g *GitRepository) advise(found *document.Findings) {
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
		found.Add("spec.ref", "the reference implementation lets tag win over semver: remove one of the two")
	}
}

func (b *Bucket) advise(found *document.Findings) {
	adviseInterval(found, b.Interval())
	b.Spec.adviseEndpoint(found)
	if p := generic(b.Spec.Provider); b.Spec.Region != "" && (p == "gcp" || p == "azure") {
		found.Add("spec.region", "has no effect with provider %s", p)
	}
	if strings.HasPrefix(b.Spec.Prefix, "/") {
		found.Add("spec.prefix", "begins with a slash, as keys hardly ever do: leave it out")
	}
	if b.Spec.STS == nil {
		return
	}
	if b.Spec.SecretRef != nil {
		found.Add("spec.sts", "has no effect: the keys of secretRef are used")
	}
	if strings.HasPrefix(b.Spec.STS.Endpoint, "http://") {
		found.Add("spec.sts.endpoint", "sends credentials in the clear: use TLS")
	}
}

// adviseEndpoint warns of credentials in the endpoint, and of what travels in the clear.
func (s *BucketSpec) adviseEndpoint(found *document.Findings) {
	u, err := s.endpoint()
	if err != nil {
		return
	}
	if u.RawQuery != "" {
		found.Add("spec.endpoint", "holds a signature, which anyone who reads the object sees: use sasKey of secretRef")
	}
	switch {
	case !s.Insecure:
	case u.Scheme == "https":
		found.Add("spec.insecure", "has no effect: the endpoint begins with https://")
	case s.SecretRef != nil || u.RawQuery != "":
		found.Add("spec.insecure", "sends what the bucket holds in the clear")
	}
}

func (o *OCIRepository) advise(found *document.Findings) {
	adviseInterval(found, o.Interval())
	adviseURL(found, o.Spec.URL, o.Spec.Insecure, o.Spec.SecretRef)
	if o.Spec.LayerSelector.selection().Operation == LayerExtract {
		adviseIgnore(found, o.Spec.Ignore)
	} else if o.Spec.Ignore != nil {
		found.Add("spec.ignore", "has no effect with layerSelector.operation copy")
	}
	o.Spec.Verify.advise(found)
	if ref := o.Spec.Ref; ref != nil {
		adviseChoice(found, "spec.ref", choice{"digest", ref.Digest}, choice{"semver", ref.SemVer}, choice{"tag", ref.Tag})
		if ref.SemVerFilter != "" && ref.SemVer == "" {
			found.Add("spec.ref.semverFilter", "has no effect without semver")
		}
	}
}

func (v *OCIRepositoryVerification) advise(found *document.Findings) {
	if v == nil || v.SecretRef == nil || v.provider() != "cosign" {
		return
	}
	if len(v.MatchOIDCIdentity) > 0 {
		found.Add("spec.verify.matchOIDCIdentity", "has no effect: the keys of secretRef decide")
	}
	if v.TrustedRootSecretRef != nil {
		found.Add("spec.verify.trustedRootSecretRef", "has no effect: the keys of secretRef decide")
	}
}

func (p *PkgRepository) advise(found *document.Findings) {
	adviseInterval(found, p.Interval())
	adviseURL(found, p.Spec.URL, p.Spec.Type == RepositoryOCI && p.Spec.Insecure, p.Spec.SecretRef)
	if p.Spec.AccessFrom != nil {
		found.Add("spec.accessFrom", accessNote)
	}
	if p.Spec.Type == RepositoryOCI {
		if p.Spec.PassCredentials {
			found.Add("spec.passCredentials", "has no effect: it goes with type default")
		}
		return
	}
	if p.Spec.PassCredentials && p.Spec.SecretRef == nil && !strings.Contains(p.Spec.URL, "@") {
		found.Add("spec.passCredentials", "has no effect without secretRef")
	}
	if p.Spec.Insecure {
		found.Add("spec.insecure", "has no effect: it goes with type oci")
	}
	if generic(p.Spec.Provider) != "generic" {
		found.Add("spec.provider", "has no effect: it goes with type oci")
	}
	if strings.HasPrefix(p.Spec.URL, "oci://") {
		found.Add("spec.type", "must be oci for this URL to work")
	}
}

func (c *PkgChart) advise(found *document.Findings) {
	adviseInterval(found, c.Interval())
	c.Spec.Verify.advise(found)
	k := spelledKind(c.Spec.SourceRef.Kind)
	if k != nil && k.name != "PkgRepository" && c.Spec.Version != "" && c.Spec.Version != "*" {
		found.Add("spec.version", "has no effect with a chart from a %s", c.kindOf(k.name))
	}
	if c.Spec.IgnoreMissingValuesFiles && len(c.Spec.ValuesFiles) == 0 {
		found.Add("spec.ignoreMissingValuesFiles", "has no effect without valuesFiles")
	}
}

func (e *ExternalArtifact) advise(*document.Findings) {}
