package chart

// normalise returns the URL of a repository as it is compared and asked for
// (reference A12, "URL normalisation").
func normalise(text string) (string, error) { return "", errTODO }
