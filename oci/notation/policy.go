package notation

import (
	"fmt"
	"slices"
	"strings"

	"github.com/notaryproject/notation-go/verifier/trustpolicy"
	"github.com/opencontainers/go-digest"

	"github.com/headgate-io/headgate/source"
)

// mode is the mode of every [source.Verification] here.
const mode = "notation"

// maxScopes bounds how many scopes an error lists.
const maxScopes = 10

// A statement is the part of a trust policy that counts for one repository.
type statement struct {
	repository string
	name       string
	level      *trustpolicy.VerificationLevel
}

// statement returns the statement for a repository.
func (t *trust) statement(repository string) (statement, error) {
	p, err := t.policy.GetApplicableTrustPolicy(reference(repository))
	if err != nil {
		return statement{}, fmt.Errorf("%s in secret %s has no statement for %s, only for the registryScopes %s: add it there",
			policyKey, t.secret, repository, t.scopes())
	}
	level, err := p.SignatureVerification.GetVerificationLevel()
	if err != nil {
		return statement{}, fmt.Errorf("%s in secret %s: %w", policyKey, t.secret, err)
	}
	return statement{repository, p.Name, level}, nil
}

// reference returns how the policy is asked about a repository: with a digest, which does not matter to it.
func reference(repository string) string { return repository + "@" + digest.FromString("").String() }

// scopes lists the scopes of all statements.
func (t *trust) scopes() string {
	var all []string
	for _, p := range t.policy.TrustPolicies {
		all = append(all, p.RegistryScopes...)
	}
	text := fmt.Sprintf("%.200q", all[:min(len(all), maxScopes)])
	if left := len(all) - maxScopes; left > 0 {
		text += fmt.Sprintf(" and %d more", left)
	}
	return text
}

// skips reports whether nothing is to be verified.
func (s statement) skips() bool { return s.level.Name == trustpolicy.LevelSkip.Name }

// skipped is the verification where nothing is to be verified.
func (s statement) skipped() source.Verification {
	return source.Verification{
		Mode: mode, Level: s.level.Name, Ignored: true,
		Message: fmt.Sprintf("no signature was looked for: statement '%s' of the trust policy is at level skip", s.name),
	}
}

// enforces reports whether a failed check refuses a signature.
func (s statement) enforces(check trustpolicy.ValidationType) bool {
	return s.level.Enforcement[check] == trustpolicy.ActionEnforce
}

// lenient lists the checks that the level does not enforce.
func (s statement) lenient() string {
	var checks []string
	for _, check := range trustpolicy.ValidationTypes {
		if !s.enforces(check) {
			checks = append(checks, string(check))
		}
	}
	return strings.Join(slices.Compact(checks), ", ")
}
