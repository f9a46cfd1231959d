package exchange

import (
	"fmt"

	"github.com/headgate-io/headgate/source"
)

// Own reports why the identity of the program itself cannot be used for r, nil
// when it can: for another identity than its own, and towards servers that are
// not vouched for by the system but by whoever wrote the object.
func Own(r source.LoginRequest) error {
	switch {
	case r.ServiceAccount != "":
		return fmt.Errorf("%w: %w: spec.serviceAccountName: only a cluster issues tokens of its service accounts; remove it to use the identity of this program",
			source.ErrInvalid, source.ErrProvider)
	case r.OwnTrust:
		return fmt.Errorf("%w: secret %s: ca.crt, tls.crt and tls.key do not go with the identity of this program, which is shown only to servers that the system trusts: "+
			"remove them, and add the CA to those of the system", source.ErrProvider, r.SecretName)
	}
	return nil
}
