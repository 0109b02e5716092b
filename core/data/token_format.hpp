// The formats of token files, by the names that data.format takes.
//
// nanogpt   raw ids and nothing else, u16 or u32; the caller says which, or the file's name does.
// llm.c     256 integers of 4 bytes and then ids. The integers: 20240520, 1, the number of ids, 0, ... before u16 ids
//           (GPT-2's), 20240801, 7, the number of ids, 0, ... before u32 ids (Llama 3's).
// megatron  PREFIX.bin, raw ids, and PREFIX.idx, which says their type and where each sequence begins (MegatronIndex).
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "data/token_source.hpp"
#include "data/token_type.hpp"

namespace strata::data {

const std::vector<std::string>& token_formats();

// Whether files of `format` say how long a token is, so that nobody else has to. Throws Bug for an unknown format.
bool states_its_type(const std::string& format);

// Whether files of `format` come with an order of their own to train on (MegatronOrder). Throws Bug for an unknown
// format.
bool has_its_own_order(const std::string& format);

// Opens what `path` names. nanogpt, llm.c: a file, or a pattern like fineweb_train_*.bin when there is no file of that
// very name: all files that match, in the order of their names' bytes, as one row of tokens. megatron: PREFIX,
// PREFIX.bin or PREFIX.idx. `type`: of nanogpt's tokens; empty: token_type_of(path), unless the first tokens look as if
// that were too narrow. Throws UserError "FILE: ..." for files that are not there, of another format or type, cut off
// or of contradictory sizes; Bug for an unknown format or a type given where the file says it.
TokenSource open_tokens(const std::string& format, const std::string& path, std::optional<TokenType> type = {});

// The format that a file's first bytes and neighbours speak for: llm.c's magic numbers; PREFIX.idx beside PREFIX or
// PREFIX.bin; else nanogpt. Throws UserError when there is no such file.
std::string detect_format(const std::string& path);

}  // namespace strata::data
