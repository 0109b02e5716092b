// The work of translate_deepspeed (deepspeed.hpp), one file a part: deepspeed_reader.cpp which keys there are and how
// ours are written, deepspeed_rows.cpp what a row of the table does, deepspeed_rules.cpp what a table cannot say,
// deepspeed_batch.cpp the batch.
#pragma once
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tools/deepspeed/deepspeed.hpp"
#include "tools/deepspeed/deepspeed_table.hpp"

namespace strata::config {

class DeepSpeedReader {
 public:
  // `settings` are --set's; `device` is the plugin that the run will have.
  DeepSpeedReader(const DeepSpeedTable& table, Node file, const Node& settings, std::string device,
                  const PluginSource& plugins, const DialectAnswers& answers);

  // `compat` and `allowed` from --set, see translate_deepspeed.
  void read(const Node* compat, const Node* allowed);

  Node tree;
  Translation report;

 private:
  struct Leaf {
    std::string path;
    Place place;  // of the key
    const Node* value;
    const Node* row;  // null for a key of a block
  };

  // deepspeed_reader.cpp
  void apply_aliases();
  void collect(const Node& section, const std::string& path);
  void unknown(const Entry& entry, const std::string& path, const std::vector<std::string>& known);
  void block(const Entry& entry, const std::string& path, const Node& row);

  // deepspeed_rows.cpp
  void visit(const Leaf& leaf);
  void take(const Leaf& leaf, const std::string& canonical);
  void automatic(const Leaf& leaf);
  void hidden_size_rule(const Leaf& leaf, const std::string& target, const Node& rule);
  void emit_default(const std::string& path, const Node& row);
  void fill();

  // deepspeed_reader.cpp
  std::string typed(const Leaf& leaf) const;  // the value in one spelling; throws UserError when its type is wrong
  std::string expand(std::string target) const;
  bool exists(const std::string& target) const;
  bool is_chosen(const std::string& name) const;
  const Node* given(const std::string& path) const;  // null when left out or null
  const Node* set(const std::string& path) const;    // what --set says
  // What was emitted, for a line: "a.b = c", and that --set changes it.
  std::string put(const std::string& path, Node value, const Place& place, const std::string& origin);
  std::string put_from(const Leaf& leaf, const std::string& path, const Node& value);
  std::string also(const Leaf& leaf, const Node& value);
  void line(const Leaf& leaf, const std::string& text);
  void refuse(const Leaf& leaf, const std::string& reason);  // returns when that is allowed
  bool is_allowed(const std::string& path) const;

  // deepspeed_rules.cpp
  void choose();
  void choose_precision();
  void choose_partitioner();
  void refuse_optimizer() const;
  void choose_optimizer();
  void choose_schedule();
  void choose_momentum();
  bool rule(const Leaf& leaf, const std::string& name);  // false: the row goes on as any other
  std::optional<std::int64_t> count(const std::string& path,
                                    const char* minimum = "1") const;  // none: left out, "auto"
  bool is_automatic(const std::string& path) const;
  void pipeline_leaf(const Leaf& leaf);
  void csv_monitor_leaf(const Leaf& leaf);
  bool is_pipelined() const;
  std::int64_t stages() const;

  // deepspeed_batch.cpp
  void batch();
  std::optional<std::int64_t> micro_batches(std::optional<std::int64_t> samples, std::optional<std::int64_t> micro,
                                            std::optional<std::int64_t> total) const;
  void hand_on(const std::string& path, const std::string& target, std::optional<std::int64_t> value,
               const Leaf* automatic);
  std::string automatic_batch_text() const;

  const DeepSpeedTable& table_;
  Node file_;
  const Node& settings_;
  std::string device_;
  const PluginSource& plugins_;
  const DialectAnswers& answers_;
  std::string compat_;
  std::vector<std::string> allowed_;
  std::vector<Leaf> leaves_;
  std::set<std::string> dropped_;  // "auto" that DeepSpeed reads as left out
  std::string partitioner_, precision_, optimizer_, schedule_;
  std::int64_t stage_ = 0;
};

// A scalar as YAML spells it.
Node scalar_node(const std::string& text, const Place& place, const std::string& origin);
std::string spelled(const Node& node);  // a scalar or a list of them, for people

}  // namespace strata::config
